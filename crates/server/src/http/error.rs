//! Errors of requests, in the formats of OpenAI and Anthropic.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tabla::error::shorten;
use tabla::{Error, ErrorKind};

/// API whose formats an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI, and everything else.
    OpenAi,
    /// Anthropic's `/v1/messages`, and `/v1/models` for its clients.
    Anthropic,
}

impl Dialect {
    /// Returns the API of a request with a cleaned path. Clients of Anthropic send its version.
    pub(crate) fn of_request(path: &str, headers: &HeaderMap) -> Self {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let is_in = |folder: &str| {
            let rest = path.strip_prefix(folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match is_in("/messages") || is_in("/models") && headers.contains_key("anthropic-version") {
            true => Self::Anthropic,
            false => Self::OpenAi,
        }
    }
}

/// Error of a request.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// Message for the client. Quoted texts and words have at most 200 characters.
    pub(crate) message: String,
    /// Field of the request.
    pub(crate) param: Option<String>,
    /// Word that identifies the error.
    pub(crate) code: Option<&'static str>,
    /// Seconds after which the client may try again.
    pub(crate) retry_after: Option<u32>,
    /// Further fields of the error object.
    pub(crate) extra: Vec<(&'static str, Value)>,
}

/// Result of a request.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// Code of a prompt that exceeds the context.
    pub(crate) const CONTEXT_LENGTH: &'static str = "context_length_exceeded";

    /// Code of a model that cannot be loaded.
    pub(crate) const LOAD_FAILED: &'static str = "model_load_failed";

    /// Code of an error after which the model must be loaded again.
    pub(crate) const MODEL_LOST: &'static str = "model_lost";

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            status,
            message: shorten(&message).into_owned(),
            param: None,
            code: None,
            retry_after: None,
            extra: Vec::new(),
        }
    }

    /// Creates the error of an invalid request.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Creates the error of an invalid field.
    pub(crate) fn field(param: impl Into<String>, message: impl std::fmt::Display) -> Self {
        let param = param.into();
        Self {
            param: Some(param.clone()),
            ..Self::invalid(format!("{param}: {message}"))
        }
    }

    /// Creates the error of a field whose value the library rejects. Errors that the value has not caused
    /// name no field.
    pub(crate) fn in_field(param: &str, error: Error) -> Self {
        let error = Self::from(error);
        match error.status {
            StatusCode::BAD_REQUEST => error.in_path(param),
            _ => error,
        }
    }

    /// Creates the error of a prompt that exceeds the context. Agents shorten the conversation when they
    /// find the code or the words of llama.cpp and Anthropic.
    pub(crate) fn context_length(prompt: usize, context: u32) -> Self {
        let message = format!(
            "prompt is too long: {prompt} tokens > {context} maximum; the request exceeds the available \
             context size, this model's maximum context length is {context} tokens"
        );
        Self {
            code: Some(Self::CONTEXT_LENGTH),
            param: Some("messages".to_string()),
            extra: vec![
                ("n_prompt_tokens", prompt.into()),
                ("n_ctx", context.into()),
            ],
            ..Self::invalid(message)
        }
    }

    /// Sets the field of a prompt that exceeds the context, or that the library rejects without a field.
    pub(crate) fn prompt_field(self, param: &str) -> Self {
        if self.code == Some(Self::CONTEXT_LENGTH) {
            return self.param(param);
        }
        match self.status == StatusCode::BAD_REQUEST && self.param.is_none() {
            true => self.in_path(param),
            false => self,
        }
    }

    /// Sets the field, also in the message.
    pub(crate) fn in_path(self, param: &str) -> Self {
        Self {
            message: format!("{param}: {}", self.message),
            ..self.param(param)
        }
    }

    /// Creates the error of a request that the shutdown has cancelled.
    pub(crate) fn shutting_down() -> Self {
        let message = "the server is shutting down";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(1)
    }

    /// Creates the error of a request that the model cannot answer. Not 501: the clients of OpenAI and
    /// Anthropic send a request again after any status from 500.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::invalid(message).param("model")
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Returns the status in the given API.
    fn status_in(&self, dialect: Dialect) -> StatusCode {
        match (dialect, self.status) {
            (Dialect::Anthropic, StatusCode::SERVICE_UNAVAILABLE) => {
                StatusCode::from_u16(529).unwrap_or(self.status)
            }
            (_, status) => status,
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 if self.code == Some("model_not_found") => "invalid_request_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            500 => "server_error",
            503 => "unavailable_error",
            504 => "timeout_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            500 => "api_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            _ => "invalid_request_error",
        }
    }

    /// Returns the body in the given API.
    pub(crate) fn body(&self, dialect: Dialect, request_id: &str) -> Value {
        match dialect {
            Dialect::OpenAi => {
                let mut error = json!({
                    "message": self.message,
                    "type": self.openai_type(),
                    "param": self.param,
                    "code": self.code,
                });
                for (name, value) in &self.extra {
                    error[*name] = value.clone();
                }
                json!({ "error": error })
            }
            Dialect::Anthropic => json!({
                "type": "error",
                "error": { "type": self.anthropic_type(), "message": self.message },
                "request_id": request_id,
            }),
        }
    }

    /// Returns the response in the given API.
    pub(crate) fn response(&self, dialect: Dialect, request_id: &str) -> Response<Body> {
        let body = self.body(dialect, request_id).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status_in(dialect);
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Some(Self::LOAD_FAILED) {
            // The clients of OpenAI and Anthropic would try again.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// Converts an error of the library. Errors that a request can cause are 4xx.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let status = match error.kind() {
            ErrorKind::Argument
            | ErrorKind::TooLarge
            | ErrorKind::Tokenizer
            | ErrorKind::Grammar
            | ErrorKind::State
            | ErrorKind::Format
            | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::Busy
            | ErrorKind::Memory
            | ErrorKind::Device
            | ErrorKind::DeviceLost
            | ErrorKind::Poisoned
            | ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let is_lost = matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Poisoned);
        Self {
            code: is_lost.then_some(Self::MODEL_LOST),
            ..Self::new(status, message)
        }
    }
}
