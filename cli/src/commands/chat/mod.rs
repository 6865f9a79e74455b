//! `tabla chat`: one answer, or a conversation of a line for each turn, which can be taken back,
//! answered anew, saved and gone on with.

mod commands;
mod lines;
mod messages;
mod reply;

use crate::args::{
    ContextArg, DeviceArgs, ModelArg, OverflowArgs, SamplingArgs, SpeculationArgs, StructureArgs,
};
use crate::commands::common::open;
use crate::commands::common::prefill::{check_length, prefill};
use crate::output::Failure;
use crate::output::report::print_failure;
use crate::output::terminal;
use clap::Args;
use commands::{Command, HELP};
use lines::Lines;
use messages::Messages;
use reply::Reply;
use serde_json::{Map, Value};
use std::path::Path;
use tabla::text::{BUILTIN_TEMPLATES, ChatFormat, ChatTemplate, Conversation, TemplateChoice};
use tabla::{Finish, GenerateOptions, LoadOptions, Overflow, Session};

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    model: ModelArg,
    /// One message to answer; without it, every line of standard input is one, or a command: /help
    /// lists them
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// What the model is told in front of all messages
    #[arg(long, visible_alias = "system-prompt", value_name = "TEXT")]
    system: Option<String>,
    /// Template: the name of one, a file, or the text itself [default: the model's own]
    #[arg(long, value_name = "NAME|FILE|TEXT")]
    chat_template: Option<String>,
    /// Further variables of the template, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Tokens of an answer at most; -1 or 0 goes on until the model stops or the context is full
    #[arg(short, long, visible_alias = "max-tokens", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    n_predict: i64,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    overflow: OverflowArgs,
    /// Says nothing on standard error but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    structure: StructureArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}"))
}

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    let say = if args.quiet {
        |_: &str| {}
    } else {
        terminal::note
    };
    let source = args.model.source(say)?;
    let options = LoadOptions {
        samplers: args.sampling.samplers(),
        steps: args.speculation.steps(),
        ..args.device.options(args.context.positions())?
    };
    let opened = open::model(&source, &options)?;
    if !args.quiet {
        opened.notes(&source);
    }
    let session = Session::new(opened.model);
    let grammar = args.structure.grammar(session.model())?;
    let speculate = open::speculate(&args.speculation, &options)?;
    let template = template(args.chat_template.as_deref(), &session)?;
    let mut chat = Chat {
        format: ChatFormat::detect(&template, &[]),
        template,
        session,
        variables: args.chat_template_kwargs.as_ref(),
        generate: GenerateOptions {
            max_tokens: u32::try_from(args.n_predict).unwrap_or(0),
            overflow: args.overflow.overflow(),
            grammar,
            speculate,
            ..args.sampling.generate()
        },
        messages: Messages::default(),
        say,
    };
    if let Some(text) = &args.system {
        chat.messages.set_system(text);
    }
    if let Some(text) = &args.prompt {
        chat.messages.ask(text);
        return match chat.answer()? {
            Finish::Cancelled => Err(Failure::Interrupted),
            _ => Ok(()),
        };
    }
    chat.converse()
}

/// The template that the user asks for.
fn template(wanted: Option<&str>, session: &Session) -> Result<ChatTemplate, Failure> {
    let templates = session.chat_templates();
    let known = |name: &str| {
        templates.get(name).is_some() || BUILTIN_TEMPLATES.iter().any(|fallback| fallback.0 == name)
    };
    if wanted.is_none() && templates.default_name(session.tokenizer()).is_none() {
        let names: Vec<&str> = BUILTIN_TEMPLATES
            .iter()
            .map(|fallback| fallback.0)
            .collect();
        return Err(Failure::new(format!(
            "the model has no chat template: --chat-template takes a file, a text, or one of {}",
            names.join(", ")
        )));
    }
    let file = wanted.map(Path::new).filter(|path| path.is_file());
    let text = match file.filter(|_| wanted.is_some_and(|name| !known(name))) {
        Some(path) => {
            let fail = |cause| Failure::file("read the chat template", path, cause);
            Some(std::fs::read_to_string(path).map_err(fail)?)
        }
        None => None,
    };
    let choice = TemplateChoice {
        template: text.as_deref().or(wanted),
        tools: false,
    };
    Ok(templates.choose(&choice, session.tokenizer())?)
}

/// A conversation and the session that it is held in.
struct Chat<'a> {
    session: Session,
    template: ChatTemplate,
    /// How answers to the template are written.
    format: ChatFormat,
    variables: Option<&'a Map<String, Value>>,
    generate: GenerateOptions,
    messages: Messages,
    say: fn(&str),
}

impl Chat<'_> {
    /// Obeys each line of standard input, to its end. What fails leaves the conversation as it was:
    /// who types goes on, for others it ends.
    fn converse(&mut self) -> Result<(), Failure> {
        let mut lines = Lines::new()?;
        let mut offered = String::new();
        loop {
            terminal::release_interrupt();
            let Some(line) = lines.next(&offered)? else {
                return Ok(());
            };
            offered.clear();
            if line.is_empty() {
                continue;
            }
            let before = self.messages.clone();
            match Command::parse(&line).and_then(|command| self.obey(command)) {
                Ok(text) => offered = text,
                Err(failure) => {
                    self.messages = before;
                    match failure {
                        Failure::Interrupted => {}
                        Failure::Closed => return Err(failure),
                        // The program goes on, so that no exit code is due yet.
                        _ if lines.are_typed() => drop(print_failure(&failure)),
                        _ => return Err(failure),
                    }
                }
            }
        }
    }

    /// Does what a line asks for. Returns what the next one may begin with.
    fn obey(&mut self, command: Command) -> Result<String, Failure> {
        match command {
            Command::Say(text) => {
                self.messages.ask(&text);
                // An answer that is interrupted ends; the conversation goes on.
                self.answer()?;
            }
            Command::Regenerate => {
                self.messages.unanswer()?;
                let sampling = &mut self.generate.sampling;
                // The same seed would draw the same answer.
                sampling.seed = sampling.seed.wrapping_add(1);
                self.answer()?;
            }
            Command::Help => HELP.iter().for_each(|line| terminal::note(line)),
            Command::List => {
                for line in self.messages.lines() {
                    terminal::note(&terminal::one_line(&line));
                }
            }
            Command::System(text) => self.messages.set_system(&text),
            Command::Undo(turn) => drop(self.messages.back_to(turn)?),
            Command::Edit(turn) => return self.messages.back_to(turn),
            Command::Reset => self.messages.reset(),
            Command::Save(path) => {
                self.messages.save(&path)?;
                self.tell("saved", &path);
            }
            Command::Load(path) => {
                self.messages = Messages::load(&path)?;
                if self.messages.has_turns() {
                    // What the template refuses is refused now and not with the next message.
                    let conversation = Conversation {
                        add_generation_prompt: false,
                        ..self.conversation()
                    };
                    self.template.render(&conversation)?;
                }
                self.tell("loaded", &path);
            }
        }
        Ok(String::new())
    }

    /// Says how many messages went where.
    fn tell(&self, what: &str, path: &Path) {
        let count = self.messages.all().len();
        let path = path.to_string_lossy();
        (self.say)(&format!(
            "{what} {count} messages: {}",
            terminal::one_line(&path)
        ));
    }

    /// The messages as the template gets them.
    fn conversation(&self) -> Conversation<'_> {
        Conversation {
            variables: self.variables,
            ..Conversation::new(self.messages.all())
        }
    }

    /// Answers the last message. Only what the session has not seen is fed: the tokens that the
    /// conversation begins with as before stay where they are.
    fn answer(&mut self) -> Result<Finish, Failure> {
        // What stopped the answer before this one may not have been heeded.
        self.session.clear_cancel();
        terminal::catch_interrupt(self.session.canceller())?;
        let model = self.session.model().clone();
        let conversation = self.conversation();
        let prompt = self.template.render(&conversation)?;
        let mut ids = self.template.encode(&conversation, model.tokenizer())?;
        let context = model.facts().context;
        if let Overflow::Shift { keep } = self.generate.overflow {
            // As in the shift: what begins texts stays.
            let begins = ids.first().copied() == model.tokenizer().bos();
            let keep = (keep as usize).max(usize::from(begins));
            shorten(&mut ids, keep, context as usize);
        }
        check_length(&ids, context)?;
        let old = self.session.tokens().iter();
        let same = ids.iter().zip(old).take_while(|(new, old)| new == old);
        let same = same.count();
        self.session.truncate(same);
        prefill(&mut self.session, &ids[same..])?;

        let mut reply = Reply::new(&self.format, model.tokenizer(), &prompt);
        let stats = self
            .session
            .generate(&self.generate, &mut |piece| reply.take(piece));
        let (said, stats) = reply.end(stats)?;
        self.messages.answer(&said);
        Ok(stats.finish)
    }
}

/// Makes room for an answer where a conversation fills the context: the older part behind the
/// first `keep` tokens goes, as in [`Overflow::Shift`].
fn shorten(ids: &mut Vec<u32>, keep: usize, context: usize) {
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
    fn a_conversation_that_fills_the_context_loses_its_older_part() {
        let shortened = |len, keep| {
            let mut ids: Vec<u32> = (0..len).collect();
            shorten(&mut ids, keep, 8);
            ids
        };
        assert_eq!(shortened(7, 0), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shortened(8, 0), [4, 5, 6, 7]);
        assert_eq!(shortened(20, 2), [0, 1, 17, 18, 19]);
        assert_eq!(shortened(20, 99), [0, 1, 2, 3, 18, 19]);
    }
}
