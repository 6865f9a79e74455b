//! Requests without a connection, for fuzzing.

use crate::api;
use crate::app::App;
use crate::config::Config;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// A server without a port.
#[derive(Debug)]
pub struct InProcess {
    runtime: Runtime,
    router: Router,
}

impl InProcess {
    /// Creates the server of a configuration.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid configuration; errors of the system.
    pub fn new(config: &Config) -> std::io::Result<Self> {
        let invalid = |message| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
        let app = Arc::new(App::new(config).map_err(invalid)?);
        Ok(Self {
            runtime: Runtime::new()?,
            router: api::router(&app),
        })
    }

    /// Posts a body and returns the status and the whole answer.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid path or content type.
    pub fn post(
        &self,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let request = Request::post(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(body.to_vec()))
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidInput, error))?;
        let router = self.router.clone();
        self.runtime.block_on(async {
            let response = match router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await;
            let body = body.map_err(std::io::Error::other)?;
            Ok((status, body.to_bytes().to_vec()))
        })
    }
}
