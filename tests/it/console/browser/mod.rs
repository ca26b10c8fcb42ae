//! The page of the console in a headless Chromium: needs the program `chromium`.

mod scene;

#[test]
fn dev_scene() {
    let story = match std::env::var("STORY").unwrap_or_default().as_str() { "quiet" => scene::Story::Quiet, "away" => scene::Story::Outage, "many" => scene::Story::ManyRules, _ => scene::Story::Incident };
    let scene = scene::Scene::start(story, 900);
    std::fs::write("/tmp/scene-port", scene.port.to_string()).unwrap();
    while std::path::Path::new("/tmp/scene-port").exists() { std::thread::sleep(std::time::Duration::from_millis(200)); }
}
