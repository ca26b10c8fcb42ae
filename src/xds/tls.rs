//! TLS to the server by rustls. The files are read at each connect, and watched while a stream is open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tls::{Authorities, PemError, PemFault, PemFile, ServerTrust, SystemAuthoritiesError, WatchedFiles};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

use super::options::TlsFiles;

/// Two checks that agree make a change, so a change is noticed within a second.
const CHECK_EVERY: Duration = Duration::from_millis(400);

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsFilesError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    System(#[from] SystemAuthoritiesError),
    #[error("TLS cannot be set up: {0}")]
    Config(String),
}

/// The files of one client.
pub(super) struct ClientTls {
    files: TlsFiles,
    /// Of the last files that could be used.
    last_good: Option<TlsConnector>,
}

/// What a connection needs.
pub(super) struct LoadedTls {
    pub connector: TlsConnector,
    /// Why the newest files are not used; `connector` has those before.
    pub fault: Option<TlsFilesError>,
    pub watch: CertificateWatch,
}

impl ClientTls {
    pub fn new(files: TlsFiles) -> Self {
        Self { files, last_good: None }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be used, and none could be before.
    pub async fn load(&mut self) -> Result<LoadedTls, TlsFilesError> {
        let files = self.files.clone();
        let read = move || {
            let (watched, contents) = WatchedFiles::open(paths(&files));
            (watched, connector(&files, contents))
        };
        let (watched, read) = on_blocking_thread(read).await;
        let watch = CertificateWatch { files: self.files.clone(), watched: Arc::new(Mutex::new(watched)) };
        match (read, &self.last_good) {
            (Ok(connector), _) => {
                self.last_good = Some(connector.clone());
                Ok(LoadedTls { connector, fault: None, watch })
            }
            (Err(fault), Some(last_good)) => {
                Ok(LoadedTls { connector: last_good.clone(), fault: Some(fault), watch })
            }
            (Err(fault), None) => Err(fault),
        }
    }
}

/// Compares the files with those of one connection.
pub(super) struct CertificateWatch {
    files: TlsFiles,
    watched: Arc<Mutex<WatchedFiles>>,
}

impl CertificateWatch {
    /// Waits for the next change, and says whether the new files can be used.
    pub async fn change(&self) -> Result<(), TlsFilesError> {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let (watched, files) = (Arc::clone(&self.watched), self.files.clone());
            let check = move || {
                let contents = watched.lock().check()?;
                Some(connector(&files, contents).map(|_| ()))
            };
            if let Some(result) = on_blocking_thread(check).await {
                return result;
            }
        }
    }
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Cancelled: the runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// In the order in which [`connector`] takes their contents.
fn paths(files: &TlsFiles) -> Vec<PathBuf> {
    let identity = files.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
    files.ca.iter().chain(identity).cloned().collect()
}

fn connector(
    files: &TlsFiles,
    contents: Vec<Result<PemFile, PemError>>,
) -> Result<TlsConnector, TlsFilesError> {
    let mut contents = contents.into_iter();
    let mut next = || contents.next().expect("one for each of the paths");
    let authorities = match files.ca {
        Some(_) => Authorities::of_file(&next()?)?,
        None => Authorities::of_system()?,
    };
    // An explicit provider: with two providers among the dependencies, the process-wide default panics.
    let provider = Arc::new(ring::default_provider());
    let trust = ServerTrust::new(authorities, Arc::clone(&provider))
        .map_err(|error| TlsFilesError::Config(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsFilesError::Config(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust));
    let mut config = match files.identity {
        None => builder.with_no_client_auth(),
        Some(_) => {
            let (certificate, key) = (next()?, next()?);
            builder
                .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
                .map_err(|error| certificate.error(PemFault::Unusable(error.to_string())))?
        }
    };
    // Servers in Go refuse a client that does not ask for it.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
