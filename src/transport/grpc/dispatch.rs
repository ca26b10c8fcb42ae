//! Which service a call is for. The decision call comes first and goes past the router, whose
//! walk and boxes it would feel.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::service::Routes;

/// A service under its own path, and all others.
#[derive(Clone, Debug)]
pub(super) struct Dispatch<F> {
    pub(super) first: F,
    pub(super) others: Routes,
}

impl<F> Service<Request<Body>> for Dispatch<F>
where
    F: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<F::Future, <Routes as Service<Request<Body>>>::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.first.poll_ready(cx)
    }

    fn call(&mut self, call: Request<Body>) -> Self::Future {
        if is_for(F::NAME, call.uri().path()) {
            Either::Left(self.first.call(call))
        } else {
            Either::Right(self.others.call(call))
        }
    }
}

/// Whether `path` is `/service/method` of this service.
fn is_for(service: &str, path: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(service));
    method.is_some_and(|method| method.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_for;

    #[test]
    fn a_path_belongs_to_the_service_it_names_whole() {
        assert!(is_for("a.B", "/a.B/Call"));
        assert!(!is_for("a.B", "/a.Bc/Call"));
        assert!(!is_for("a.B", "/a.B"));
        assert!(!is_for("a.B", "a.B/Call"));
    }
}
