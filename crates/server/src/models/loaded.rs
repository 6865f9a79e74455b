//! A loaded model and what requests need of it.

use crate::config::ModelConfig;
use crate::engine::admission::{Admission, QueueLimits, Ticket};
use crate::engine::messages::LateSystem;
use crate::engine::samplers::Samplers;
use crate::http::error::{ApiError, ApiResult};
use crate::metrics::ModelMetrics;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tabla::text::{ChatTemplate, Conversation, EncodeOptions, TemplateChoice};
use tabla::{Model, Overflow, Session, TableId};

/// Built-in chat template of models without one.
const FALLBACK_TEMPLATE: &str = "chatml";

/// What a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A decoder, which generates text.
    Text,
    /// An encoder, which computes embeddings or classifies texts.
    Encoder,
    /// A speech model.
    Speech,
}

/// A loaded model.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) model: Model,
    pub(crate) kind: Kind,
    /// Bytes of weights, KV cache and scratch.
    pub(crate) bytes: u64,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<ModelMetrics>,
    pub(crate) samplers: Samplers,
    /// Behavior when the context is full.
    pub(crate) overflow: Overflow,
    template_choice: Option<String>,
    /// Variables of the chat template, which requests can replace.
    template_variables: Map<String, Value>,
    /// Chat templates without and with tools.
    templates: [OnceLock<ApiResult<ChatTemplate>>; 2],
    late_system: OnceLock<LateSystem>,
    /// Whether the use of [`FALLBACK_TEMPLATE`] was reported.
    has_reported_fallback: AtomicBool,
}

impl Loaded {
    pub(crate) fn new(
        config: &ModelConfig,
        metrics: &Arc<ModelMetrics>,
        model: Model,
        samplers: Samplers,
        bytes: u64,
        queue: QueueLimits,
    ) -> Self {
        let kind = match (model.table(TableId::Encode), model.is_encoder()) {
            (Some(_), _) => Kind::Speech,
            (None, true) => Kind::Encoder,
            (None, false) => Kind::Text,
        };
        let slots = model.facts().sequences.max(1) as usize;
        let pass_slots = match kind {
            Kind::Text => slots.saturating_sub(1).max(1),
            Kind::Encoder | Kind::Speech => slots,
        };
        Self {
            name: config.name.clone(),
            kind,
            bytes,
            admission: Admission::new(slots, pass_slots, queue),
            metrics: Arc::clone(metrics),
            samplers,
            // The state of recurrent layers cannot be shifted.
            overflow: match model.facts().state_bytes {
                0 => config.overflow,
                _ => Overflow::Stop,
            },
            template_choice: config.chat_template.clone(),
            template_variables: config.template_variables.clone(),
            templates: Default::default(),
            late_system: OnceLock::new(),
            has_reported_fallback: AtomicBool::new(false),
            model,
        }
    }

    /// Enters the queue.
    ///
    /// # Errors
    ///
    /// Status 429 if it is full.
    pub(crate) fn admit(&self) -> ApiResult<Ticket> {
        self.admission.enter().inspect_err(|_| {
            self.metrics.rejected.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Returns the error of a request. If the model's files have changed since it was loaded, that is the cause; the next
    /// request loads it again.
    pub(crate) fn explain(&self, error: ApiError) -> ApiError {
        let may_be_of_files =
            [StatusCode::BAD_REQUEST, StatusCode::INTERNAL_SERVER_ERROR].contains(&error.status);
        if !may_be_of_files || self.model.check_files().is_ok() {
            return error;
        }
        let message = format!(
            "the files of the model {} have changed: try again",
            self.name
        );
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
        error.code(ApiError::MODEL_LOST).retry_after(1)
    }

    /// Creates a session.
    pub(crate) fn session(&self) -> Session {
        Session::new(self.model.clone())
    }

    /// Whether the model files or the configuration have a chat template.
    pub(crate) fn has_template(&self) -> bool {
        let templates = self.model.chat_templates();
        self.template_choice.is_some() || templates.default_name(self.model.tokenizer()).is_some()
    }

    /// Returns a warning at the first chat with a model without a chat template.
    pub(crate) fn template_warning(&self) -> Option<String> {
        let is_first =
            !self.has_template() && !self.has_reported_fallback.swap(true, Ordering::Relaxed);
        is_first.then(|| {
            format!(
                "the model {} has no chat template, chats have the template {FALLBACK_TEMPLATE}: select another one with --chat-template",
                self.name
            )
        })
    }

    /// Returns the chat template for these tools; [`FALLBACK_TEMPLATE`] if there is none.
    ///
    /// # Errors
    ///
    /// Status 400 if the template is invalid.
    pub(crate) fn template(&self, tools: &[Value]) -> ApiResult<&ChatTemplate> {
        let with_tools = !tools.is_empty();
        let template = self.templates[usize::from(with_tools)].get_or_init(|| {
            let name = match self.has_template() {
                true => self.template_choice.as_deref(),
                false => Some(FALLBACK_TEMPLATE),
            };
            let choice = TemplateChoice::default().template(name).tools(with_tools);
            let templates = self.model.chat_templates();
            let template = templates.choose(&choice, self.model.tokenizer());
            template.map_err(|error| {
                let message = format!("the model {} cannot chat: {error}", self.name);
                ApiError::unsupported(message).code("no_chat_template")
            })
        });
        template.as_ref().map_err(Clone::clone)
    }

    /// Returns the variables of the chat template for a request with these ones.
    pub(crate) fn template_variables<'r>(
        &self,
        request: &'r Map<String, Value>,
    ) -> Cow<'r, Map<String, Value>> {
        if self.template_variables.is_empty() {
            return Cow::Borrowed(request);
        }
        let mut variables = self.template_variables.clone();
        variables.extend(request.clone());
        Cow::Owned(variables)
    }

    /// Returns where system messages after the first message go.
    pub(crate) fn late_system(&self) -> LateSystem {
        *self.late_system.get_or_init(|| {
            let Ok(template) = self.template(&[]) else {
                return LateSystem::Moved;
            };
            let text = "be brief";
            let messages = [
                json!({ "role": "system", "content": "a" }),
                json!({ "role": "user", "content": "b" }),
                json!({ "role": "system", "content": text }),
                json!({ "role": "user", "content": "c" }),
            ];
            let rendered = template.render(&Conversation::new(&messages));
            match rendered.is_ok_and(|rendered| rendered.contains(text)) {
                true => LateSystem::Kept,
                false => LateSystem::Moved,
            }
        })
    }

    /// Whether the model generates text from conversations, with a chat template of its own.
    pub(crate) fn can_chat(&self) -> bool {
        self.kind == Kind::Text && self.has_template() && self.template(&[]).is_ok()
    }

    /// Checks that the model generates text.
    pub(crate) fn check_text(&self) -> ApiResult<()> {
        match self.kind {
            Kind::Text => Ok(()),
            Kind::Encoder if self.model.classifier().is_some() => {
                Err(ApiError::unsupported(format!(
                    "the model {} is a classifier: it computes scores and does not generate text",
                    self.name
                )))
            }
            Kind::Encoder => Err(ApiError::unsupported(format!(
                "the model {} is an encoder: it computes embeddings and does not generate text",
                self.name
            ))),
            Kind::Speech => Err(ApiError::unsupported(format!(
                "the model {} is a speech model: it transcribes audio and does not generate text",
                self.name
            ))),
        }
    }

    /// Checks that the model has a classification head.
    pub(crate) fn check_classifier(&self) -> ApiResult<()> {
        match self.model.classifier() {
            Some(_) => Ok(()),
            None => Err(ApiError::unsupported(format!(
                "the model {} has no classification head: it cannot classify texts",
                self.name
            ))),
        }
    }

    /// Checks the number of prompt tokens: at least one more must fit.
    pub(crate) fn check_length(&self, tokens: usize) -> ApiResult<()> {
        let context = self.model.facts().context;
        match tokens < context as usize {
            true => Ok(()),
            false => Err(ApiError::context_length(tokens, context)),
        }
    }

    /// Checks the length of a text before it is tokenized: a token has at most a few dozen bytes.
    pub(crate) fn check_bytes(&self, bytes: usize) -> ApiResult<()> {
        let context = self.model.facts().context;
        let longest = self.model.tokenizer().piece_bytes_max().max(16);
        let max = (context as usize).saturating_mul(longest);
        match bytes <= max {
            true => Ok(()),
            false => Err(ApiError::context_length(bytes / longest, context)),
        }
    }

    /// Tokenizes text.
    pub(crate) fn tokenize(&self, text: &str, options: EncodeOptions) -> ApiResult<Vec<u32>> {
        self.check_bytes(text.len())?;
        Ok(self.model.tokenizer().encode(text, options)?)
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
