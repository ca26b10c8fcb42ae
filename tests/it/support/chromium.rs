//! A headless Chromium with one page, driven by the DevTools protocol over a pipe.
//!
//! <https://chromedevtools.github.io/devtools-protocol/> lists the methods. Messages are JSON texts that end with a
//! zero byte. Chromium reads them from file descriptor 3 and writes them to file descriptor 4, so that there is no
//! port.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::wait;

/// Names of the program: Debian, Fedora, Google's own package. The first, without the windows of a desktop, needs
/// a quarter of the CPU time.
const PROGRAMS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The colours that the user prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colors {
    Light,
    Dark,
}

/// A browser that shows one page. It is killed when dropped.
pub struct Chromium {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    calls: u64,
    events: Vec<Value>,
    directory: TempDir,
}

impl Chromium {
    /// Opens this page, as a user opens a report from disk.
    pub fn open(html: &str, colors: Colors) -> Self {
        let mut browser = Self::start(colors);
        browser.show(html);
        browser
    }

    /// Opens a page of a server.
    pub fn open_url(url: &str, colors: Colors) -> Self {
        let mut browser = Self::start(colors);
        browser.navigate(url);
        browser
    }

    /// Writes `html` to a file and opens it in place of the page before.
    pub fn show(&mut self, html: &str) {
        let page = self.directory.path().join("report.html");
        std::fs::write(&page, html).expect("a page");
        self.navigate(&format!("file://{}", page.display()));
    }

    fn navigate(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for("Page.loadEventFired");
    }

    /// Starts a browser without a page.
    pub fn start(colors: Colors) -> Self {
        let mut browser = Self::spawn(TempDir::new().expect("a temporary directory"));
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        attached["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.set_size(1_200, 900);
        let scheme = if colors == Colors::Dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
        browser
    }

    fn spawn(directory: TempDir) -> Self {
        let program = program();
        // Chromium's sandbox does not run as root, as which many containers run. It opens only the file of the test.
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        ];
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#])
            .arg(&program)
            .args(flags)
            .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{} does not start ({error}): run `make tools`", program.display())
            });
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let (sender, messages) = channel();
        // Ends when the browser closes the pipe, which it does when it is killed.
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("a message of the browser");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { child, input, messages, session: String::new(), calls: 0, events: Vec::new(), directory }
    }

    pub fn set_size(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Calls a method and returns its result. Fails the test if the browser reports an error.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let sent = self.input.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.input.flush());
        sent.unwrap_or_else(|error| panic!("{method}: {error}; {}", self.log()));
        loop {
            let answer = self.next_message(method);
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn next_message(&self, awaited: &str) -> Value {
        let message = self.messages.recv_timeout(wait::PATIENCE);
        message.unwrap_or_else(|error| panic!("waiting for {awaited}: {error}; {}", self.log()))
    }

    fn wait_for(&mut self, event: &str) {
        while !self.events.iter().any(|seen| seen["method"] == event) {
            let message = self.next_message(event);
            self.events.push(message);
        }
    }

    /// The parameters of all events of this name so far.
    pub fn events(&self, name: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == name).map(|event| &event["params"]).collect()
    }

    /// The value of a JavaScript expression; a promise is awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The texts of all elements that a selector matches.
    pub fn texts(&mut self, selector: &str) -> Vec<String> {
        let selector = json!(selector);
        let texts =
            self.evaluate(&format!("[...document.querySelectorAll({selector})].map((e) => e.textContent)"));
        serde_json::from_value(texts).expect("texts")
    }

    /// Waits until a JavaScript expression is truthy, and returns its value. Fails the test if it never is.
    pub fn wait_until(&mut self, expression: &str) -> Value {
        let is_truthy = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && *value != "";
        let found = wait::until(wait::PATIENCE, || Some(self.evaluate(expression)).filter(is_truthy));
        found.unwrap_or_else(|| {
            let page = self.evaluate("document.body.innerText");
            panic!("never: {expression}; the page is\n{}", page.as_str().unwrap_or_default())
        })
    }

    /// Presses and releases a key, given by its name and its virtual key code.
    pub fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        let event = |kind| json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.call("Input.dispatchKeyEvent", event(down));
        self.call("Input.dispatchKeyEvent", event("keyUp"));
    }

    /// Everything that the page complained about: errors and warnings of the console, exceptions, violations of the
    /// Content-Security-Policy.
    pub fn complaints(&self) -> Vec<&Value> {
        ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"]
            .into_iter()
            .flat_map(|name| self.events(name))
            .collect()
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.directory.path().join("log")).expect("a log");
        format!("the log of the browser: {}", String::from_utf8_lossy(&log))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Fails if the browser has ended already. Its other processes end when their connection to it does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the path of a program that a test needs")]
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let candidates =
        || std::env::split_paths(&folders).flat_map(|folder| PROGRAMS.map(|name| folder.join(name)));
    candidates().find(|path| path.is_file()).expect("Chromium is not installed: run `make tools`")
}
