//! Starts the generation of a chat, for the APIs that answer conversations.

use super::common::lease;
use super::llamacpp::prompt_text;
use crate::app::App;
use crate::engine::blocking::blocking;
use crate::engine::chat::{PreparedChat, prepare, prompt};
use crate::engine::conversation::Chat;
use crate::engine::request::{Extras, Generate};
use crate::engine::run::{self, Run};
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use crate::models::Loaded;
use std::sync::Arc;
use tabla::GenerateOptions;

/// A generation that has started.
pub(crate) struct Started {
    pub(crate) model: Arc<Loaded>,
    pub(crate) options: GenerateOptions,
    /// Number of prompt tokens.
    pub(crate) prompt_tokens: u64,
    /// Text of the prompt, if it is requested.
    pub(crate) prompt: Option<String>,
    pub(crate) run: Run,
}

/// What a generation needs besides the chat.
pub(crate) struct Settings {
    /// Number of choices; 0: only the prompt is processed.
    pub(crate) choices: u32,
    pub(crate) extras: Extras,
    /// Whether the text of the prompt is returned.
    pub(crate) returns_prompt: bool,
}

/// Enters the queue of the model, prepares the chat that `build` returns, and starts the generation.
pub(crate) async fn start<F>(
    app: &App,
    context: &RequestContext,
    model: Option<&str>,
    settings: Settings,
    build: F,
) -> ApiResult<Started>
where
    F: FnOnce(&Loaded) -> ApiResult<(Chat, GenerateOptions)> + Send + 'static,
{
    let lease = lease(app, context, model).await?;
    let ticket = lease.admit()?;
    let model = lease.model();
    let budget = app.limits.reasoning_budget;
    let build = move |model: &Loaded| {
        let (chat, options) = build(model)?;
        let budget = options.reasoning_budget.or(budget);
        Ok((chat, options.reasoning_budget(budget)))
    };
    let prepared = prepared(Arc::clone(&model), build).await?;
    let PreparedChat {
        prompt,
        options,
        format,
        warnings,
    } = prepared;
    warnings.into_iter().for_each(|warning| app.warn(warning));
    let prompt_tokens = prompt.len() as u64;
    let text = settings
        .returns_prompt
        .then(|| prompt_text(&model, &prompt));
    let run = run::start(Generate {
        lease,
        ticket,
        prompts: vec![prompt],
        options: options.clone(),
        choices: settings.choices,
        echo: None,
        format,
        extras: settings.extras,
        deadline: context.deadline.clone(),
        record: Arc::clone(&context.record),
    });
    Ok(Started {
        model,
        options,
        prompt_tokens,
        prompt: text,
        run,
    })
}

/// Returns the number of prompt tokens of the chat that `build` returns.
pub(crate) async fn count<F>(
    app: &App,
    context: &RequestContext,
    model: Option<&str>,
    build: F,
) -> ApiResult<usize>
where
    F: FnOnce(&Loaded) -> ApiResult<(Chat, GenerateOptions)> + Send + 'static,
{
    let lease = lease(app, context, model).await?;
    let model = lease.model();
    blocking(move || {
        let (chat, _) = build(&model)?;
        Ok(prompt(&model, &chat)?.tokens.len())
    })
    .await
}

async fn prepared<F>(model: Arc<Loaded>, build: F) -> ApiResult<PreparedChat>
where
    F: FnOnce(&Loaded) -> ApiResult<(Chat, GenerateOptions)> + Send + 'static,
{
    blocking(move || {
        let (chat, options) = build(&model)?;
        prepare(&model, chat, options)
    })
    .await
}
