//! `tabla chat`: one response, or a conversation with a message per line. Turns can be removed,
//! regenerated, saved and loaded.

mod banner;
pub(crate) mod commands;
mod editor;
mod lines;
mod messages;
mod no_model;
mod reply;

use crate::args::{
    ContextArg, DeviceArgs, HookArgs, NameArg, OverflowArgs, SamplingArgs, SpeculationArgs,
    StructureArgs, parsers, text_file, token_limit,
};
use crate::commands::common::open;
use crate::commands::common::prefill::{check_length_or, prefill};
use crate::output::Failure;
use crate::output::cache_folders;
use crate::output::report::print_failure;
use crate::output::terminal;
use clap::Args;
use commands::Command;
use lines::Lines;
use messages::Messages;
use reply::{Reply, ReplyForm};
use serde_json::{Map, Value};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::Path;
use tabla::text::{
    AdaptedConversation, BUILTIN_TEMPLATES, ChatFormat, ChatTemplate, Conversation, TemplateChoice,
};
use tabla::{Finish, GenerateOptions, GrammarStart, Overflow, ReasoningMarkers, Session};

/// What to do about a full context.
const FULL_WAYS_OUT: &str = "use /undo or /clear, or start with --context-shift or a larger -c";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: NameArg,
    /// Message to send; without it, each line of standard input is a message or a command (see /help)
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Chat template: a name, a file, or Jinja source [default: the model's template]
    #[arg(long, value_name = "NAME|FILE|TEXT")]
    chat_template: Option<String>,
    /// Additional variables of the template, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = parsers::object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Effort of the reasoning: none disables it, other values such as low and high enable it [default:
    /// from the template]
    #[arg(long, value_name = "EFFORT")]
    reasoning_effort: Option<String>,
    /// Maximum number of tokens per response; -1: until the model stops or the context is full. -2 is -1
    /// without --context-shift
    #[arg(short, long, visible_alias = "max-tokens", value_name = "N", default_value_t = -1)]
    #[arg(value_parser = token_limit())]
    n_predict: i64,
    /// Maximum number of tokens of the reasoning; then it is closed. -1: no maximum
    #[arg(long, value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    reasoning_budget: i64,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    overflow: OverflowArgs,
    /// Print errors only to standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Do not read or write the file with the lines of earlier chats
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    structure: StructureArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    hooks: HookArgs,
}

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    let report_line = if args.quiet {
        |_: &str| {}
    } else {
        terminal::note
    };
    let source = match args.model.is_given() || args.chat_template.is_some() {
        true => args.model.source(report_line)?,
        false => no_model::choose()?,
    };
    let options = args
        .device
        .options(args.context.tokens())?
        .samplers(args.sampling.samplers());
    let options = args.speculation.add_to(options)?;
    let loaded = open::model(&source, &options)?;
    if !args.quiet {
        loaded.print_notes(&source);
    }
    let mut session = Session::new(loaded.model);
    args.hooks.apply(&mut session)?;
    let grammar = args.structure.grammar(session.model())?;
    let speculate = open::speculate(&args.speculation, &options)?;
    let template = template(args.chat_template.as_deref(), &session)?;
    let effort = args.reasoning_effort.as_deref();
    for warning in template.adapt(&Conversation::new(&[]), effort).warnings {
        report_line(&warning);
    }
    let format = ChatFormat::detect(&template, &[]);
    let grammar_start = match grammar {
        Some(_) => GrammarStart::of_content(&format),
        None => GrammarStart::default(),
    };
    let mut chat = Chat {
        format,
        template,
        session,
        variables: args.chat_template_kwargs.as_ref(),
        effort,
        generate: args
            .sampling
            .generate()
            .max_tokens(u32::try_from(args.n_predict).unwrap_or(u32::MAX))
            .overflow(args.overflow.overflow(args.n_predict, usize::MAX))
            .grammar(grammar)
            .grammar_start(grammar_start)
            .reasoning_budget(u32::try_from(args.reasoning_budget).ok())
            .speculate(speculate),
        messages: Messages::default(),
        report_line,
    };
    if let Some(text) = &args.system_prompt {
        chat.messages.set_system(text);
    }
    if let Some(text) = &args.prompt {
        chat.messages.push_user(text);
        return match chat.respond()? {
            Some(Finish::Cancelled) => Err(Failure::Interrupted),
            _ => Ok(()),
        };
    }
    if !args.quiet && io::stdin().is_terminal() && terminal::stdout_is_terminal() {
        banner::print(&source, chat.session.model().facts());
    }
    let history = cache_folders::chat_history().filter(|_| !args.no_history);
    chat.run(Lines::new(history)?)
}

/// Selects the template by name, file or source, or the model's default.
fn template(option: Option<&str>, session: &Session) -> Result<ChatTemplate, Failure> {
    let templates = session.chat_templates();
    let known = |name: &str| {
        templates.get(name).is_some() || BUILTIN_TEMPLATES.iter().any(|fallback| fallback.0 == name)
    };
    if option.is_none() && templates.default_name(session.tokenizer()).is_none() {
        let names: Vec<&str> = BUILTIN_TEMPLATES
            .iter()
            .map(|fallback| fallback.0)
            .collect();
        return Err(Failure::new(format!(
            "the model has no chat template: use --chat-template with a file, Jinja source, or one of {}",
            names.join(", ")
        )));
    }
    // A missing file is reported as such rather than as an unknown name.
    let is_file = |text: &&str| {
        let is_source = text.contains('{');
        Path::new(text).is_file() || (!is_source && text.contains(std::path::is_separator))
    };
    let file = option.filter(is_file).map(Path::new);
    let text = match file.filter(|_| option.is_some_and(|name| !known(name))) {
        Some(path) => Some(text_file::read(path)?),
        None => None,
    };
    let choice = TemplateChoice::default()
        .template(text.as_deref().or(option))
        .tools(false);
    Ok(templates.choose(&choice, session.tokenizer())?)
}

/// A conversation and its session.
struct Chat<'a> {
    session: Session,
    template: ChatTemplate,
    /// Format of the responses to the template.
    format: ChatFormat,
    variables: Option<&'a Map<String, Value>>,
    effort: Option<&'a str>,
    generate: GenerateOptions,
    messages: Messages,
    report_line: fn(&str),
}

impl Chat<'_> {
    /// Runs each line of standard input. A failed line leaves the messages unchanged. An error ends the
    /// program unless the lines come from a terminal.
    fn run(&mut self, mut lines: Lines) -> Result<(), Failure> {
        let mut initial = String::new();
        if lines.is_terminal() {
            terminal::ignore_repeated_interrupts();
        }
        loop {
            terminal::release_interrupt();
            let Some(line) = lines.next(&initial)? else {
                return Ok(());
            };
            initial.clear();
            if line.is_empty() {
                continue;
            }
            let before = self.messages.clone();
            match Command::parse(&line).and_then(|command| self.execute(command)) {
                Ok(ControlFlow::Continue(text)) => initial = text,
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(failure) => {
                    self.messages = before;
                    match failure {
                        Failure::Interrupted => {}
                        Failure::Closed => return Err(failure),
                        // The program continues, so the exit code is unused.
                        _ if lines.is_terminal() => drop(print_failure(&failure)),
                        _ => return Err(failure),
                    }
                }
            }
        }
    }

    /// Runs a command. Returns the initial text of the next line in the editor, or the end of the chat.
    fn execute(&mut self, command: Command) -> Result<ControlFlow<(), String>, Failure> {
        match command {
            Command::Message(text) => {
                self.messages.push_user(&text);
                // An interrupted response does not end the conversation.
                self.respond()?;
            }
            Command::Regenerate => {
                self.messages.remove_response()?;
                let sampling = &mut self.generate.sampling;
                // The same seed would generate the same response.
                sampling.seed = sampling.seed.wrapping_add(1);
                self.respond()?;
            }
            Command::Help => {
                let lines = commands::help(terminal::stderr_columns());
                lines.for_each(|line| terminal::eprint_line(&line));
            }
            Command::List => {
                for line in self.messages.lines() {
                    terminal::eprint_line(&terminal::one_line(&line));
                }
            }
            Command::System(text) => self.messages.set_system(&text),
            Command::Undo(turn) => drop(self.messages.undo(turn)?),
            Command::Edit(turn) => return Ok(ControlFlow::Continue(self.messages.undo(turn)?)),
            Command::Reset => self.messages.reset(),
            Command::Exit => return Ok(ControlFlow::Break(())),
            Command::Save(path) => {
                self.messages.save(&path)?;
                self.report_file("saved", &path);
            }
            Command::Load(path) => {
                self.messages = Messages::load(&path)?;
                if self.messages.has_turns() {
                    // Messages that the template rejects are an error now, not with the next message.
                    let adapted = self.adapted();
                    let conversation = adapted.conversation().add_generation_prompt(false);
                    self.template.render(&conversation)?;
                }
                self.report_file("loaded", &path);
            }
        }
        Ok(ControlFlow::Continue(String::new()))
    }

    /// Reports the number of messages that were saved or loaded.
    fn report_file(&self, action: &str, path: &Path) {
        let count = self.messages.all().len();
        let path = path.to_string_lossy();
        (self.report_line)(&format!(
            "{action} {}: {}",
            terminal::counted(count, "message"),
            terminal::one_line(&path)
        ));
    }

    /// Returns the input of the template.
    fn adapted(&self) -> AdaptedConversation<'_> {
        let conversation = Conversation::new(self.messages.all()).variables(self.variables);
        self.template.adapt(&conversation, self.effort)
    }

    /// Generates a response to the last message. Tokens that the session has already computed for a
    /// common prefix are reused.
    fn respond(&mut self) -> Result<Option<Finish>, Failure> {
        // A cancellation that arrived after the previous response ended must not stop this one.
        self.session.clear_cancel();
        terminal::catch_interrupt(self.session.canceller())?;
        let model = self.session.model().clone();
        let adapted = self.adapted();
        let conversation = adapted.conversation();
        let (prompt, mut ids) = self.template.prompt(&conversation, model.tokenizer())?;
        let context = model.facts().context;
        if let Overflow::Shift { n_keep } = self.generate.overflow {
            // As in a context shift, a BOS token is kept.
            let starts_with_bos = ids.first().copied() == model.tokenizer().bos();
            let keep = (n_keep as usize).max(usize::from(starts_with_bos));
            shift(&mut ids, keep, context as usize);
        }
        check_length_or(&ids, context, FULL_WAYS_OUT)?;
        let old = self.session.tokens().iter();
        let common = ids.iter().zip(old).take_while(|(new, old)| new == old);
        let common = common.count();
        self.session.truncate(common);
        prefill(&mut self.session, &ids[common..])?;

        self.generate.reasoning = ReasoningMarkers::of_format(&self.format, &prompt);
        let form = match self.generate.grammar {
            Some(_) => ReplyForm::Content,
            None => ReplyForm::of_terminal(),
        };
        let mut reply = Reply::new(form, model.tokenizer(), self.format.parser(&prompt));
        let stats = self
            .session
            .generate_with(&self.generate, |piece| reply.push(piece));
        let (answer, stats) = reply.finish(stats)?;
        self.messages.push_assistant(&answer);
        self.report_end(stats.finish, context);
        Ok(stats.finish)
    }

    /// Reports the limit that ended a response.
    fn report_end(&self, finish: Option<Finish>, context: u32) {
        match finish {
            Some(Finish::Length) => (self.report_line)(&format!(
                "the response ended at the limit -n {}",
                self.generate.max_tokens
            )),
            Some(Finish::Context) => (self.report_line)(&format!(
                "the context of {context} tokens is full: {FULL_WAYS_OUT}"
            )),
            _ => {}
        }
    }
}

/// Shortens a prompt that fills the context: removes older tokens after the first `keep`, as in
/// [`Overflow::Shift`].
fn shift(ids: &mut Vec<u32>, keep: usize, context: usize) {
    if ids.len() >= context {
        let keep = keep.min(context / 2);
        let newest = (context - keep) / 2;
        ids.drain(keep..ids.len() - newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_older_tokens_of_a_full_context() {
        let shifted = |len, keep| {
            let mut ids: Vec<u32> = (0..len).collect();
            shift(&mut ids, keep, 8);
            ids
        };
        assert_eq!(shifted(7, 0), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shifted(8, 0), [4, 5, 6, 7]);
        assert_eq!(shifted(20, 2), [0, 1, 17, 18, 19]);
        assert_eq!(shifted(20, 99), [0, 1, 2, 3, 18, 19]);
    }
}
