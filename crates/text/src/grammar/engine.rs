//! The compiler of grammars for one tokenizer, and what it compiled last.

use super::bounded::{Bounded, Grammar};
use super::error::refused;
use super::matcher::Matcher;
use super::{gbnf, vocabulary};
use crate::Tokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher as Parser, ParserFactory};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// The library walks grammars recursively: the deepest that the bounds let through needs a half.
const STACK_BYTES: usize = 64 << 20;
/// A grammar that takes longer is refused; its thread ends when the library is done.
const TIME: Duration = Duration::from_secs(5);
/// Threads that compile at the same time, those among them that nobody waits for any more.
const THREADS_MAX: usize = 16;
/// Compiled grammars that are kept, and the bytes of their texts together.
const KEPT_MAX: usize = 32;
const KEPT_BYTES_MAX: usize = 512 << 10;

/// Compiles grammars for the vocabulary of one tokenizer. To make one takes some tenths of a second
/// and some ten megabytes, so it is made once and shared.
pub struct GrammarEngine {
    tokenizer: Arc<Tokenizer>,
    factory: Arc<ParserFactory>,
    threads: Arc<AtomicUsize>,
    /// The last used one at the end.
    kept: Mutex<Vec<(String, Arc<CompiledGrammar>)>>,
}

impl GrammarEngine {
    /// The engine for a tokenizer.
    ///
    /// # Errors
    /// `TooLarge` for a vocabulary over the limits, `Unsupported` for one that has nothing to end
    /// an answer with.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self> {
        let environment = vocabulary::environment(tokenizer).context("grammars")?;
        let mut factory = ParserFactory::new_simple(&environment).map_err(refused)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self {
            tokenizer: tokenizer.clone(),
            factory: Arc::new(factory),
            threads: Arc::default(),
            kept: Mutex::default(),
        })
    }

    /// Compiles a grammar, or finds it among those that were compiled last.
    ///
    /// # Errors
    /// `Grammar` for what is no grammar, uses what is not supported, or lets nothing through;
    /// `TooLarge` over the limits on size and time; `Busy` where too many are compiled at once.
    pub fn compile(&self, grammar: &Grammar) -> Result<Arc<CompiledGrammar>> {
        let bounded = Bounded::of(grammar)?;
        let key = bounded.key();
        if let Some(compiled) = self.find(&key) {
            return Ok(compiled);
        }
        let factory = self.factory.clone();
        let parser = apart(&self.threads, TIME, move || compile(&factory, bounded))?;
        let compiled = Arc::new(CompiledGrammar {
            parser: Mutex::new(parser),
            tokenizer: self.tokenizer.clone(),
        });
        self.keep(key, &compiled);
        Ok(compiled)
    }

    fn find(&self, key: &str) -> Option<Arc<CompiledGrammar>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(have, _)| have == key)?;
        let found = kept.remove(at);
        let compiled = found.1.clone();
        kept.push(found);
        Some(compiled)
    }

    fn keep(&self, key: String, compiled: &Arc<CompiledGrammar>) {
        let mut kept = self.kept.lock();
        kept.retain(|(have, _)| *have != key);
        kept.push((key, compiled.clone()));
        let mut bytes: usize = kept.iter().map(|(key, _)| key.len()).sum();
        let mut gone = 0;
        while kept.len() - gone > KEPT_MAX || bytes > KEPT_BYTES_MAX {
            bytes -= kept[gone].0.len();
            gone += 1;
        }
        kept.drain(..gone);
    }
}

/// Does work on a thread with a deep stack, and waits for it as long as it may take.
fn apart<T: Send + 'static>(
    threads: &Arc<AtomicUsize>,
    time: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let running = Running::one_more(threads)?;
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        let _running = running;
        // Nobody waits any more where this fails.
        let _ = sender.send(work());
    };
    thread::Builder::new()
        .name("tabla-grammar".into())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|e| Error::new(ErrorKind::Memory, "a thread for a grammar").caused_by(e))?;
    match receiver.recv_timeout(time) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => bail!(
            TooLarge,
            "the grammar takes longer than {} seconds to compile",
            time.as_secs()
        ),
        Err(RecvTimeoutError::Disconnected) => bail!(Internal, "the compiler of grammars panicked"),
    }
}

/// The work of the thread.
fn compile(factory: &ParserFactory, grammar: Bounded) -> Result<Parser> {
    let grammar = match grammar {
        Bounded::Schema(schema) => TopLevelGrammar::from_json_schema(schema),
        Bounded::Lark(text) => TopLevelGrammar::from_lark(text),
        Bounded::Gbnf(text) => TopLevelGrammar::from_lark(gbnf::to_lark(&text)?),
    };
    let mut parser = Parser::new(factory.create_parser(grammar));
    if let Some(error) = parser.get_error() {
        return Err(refused(error));
    }
    // A grammar that lets nothing through shows at its first mask.
    let first = parser.compute_mask_or_eos();
    first.map_err(|e| match refused(e) {
        e if e.message() == "NoExtensionBias" => {
            Error::new(ErrorKind::Grammar, "the grammar lets no answer through")
        }
        e => e,
    })?;
    Ok(parser)
}

/// One of the threads that compile.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn one_more(threads: &Arc<AtomicUsize>) -> Result<Self> {
        let running = Self(threads.clone());
        if running.0.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            bail!(
                Busy,
                "{THREADS_MAX} grammars are being compiled already: try again later"
            );
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for GrammarEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarEngine")
            .field("kept", &self.kept.lock().len())
            .finish_non_exhaustive()
    }
}

/// A grammar that is ready for answers.
pub struct CompiledGrammar {
    parser: Mutex<Parser>,
    tokenizer: Arc<Tokenizer>,
}

impl CompiledGrammar {
    /// A matcher at the start of an answer.
    pub fn matcher(&self) -> Matcher {
        let parser = self.parser.lock().deep_clone();
        Matcher::new(parser, self.tokenizer.clone())
    }

    /// Whether it was compiled for this tokenizer.
    pub fn is_of(&self, tokenizer: &Tokenizer) -> bool {
        std::ptr::eq(&*self.tokenizer, tokenizer)
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGrammar").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// The kind of the error of work on a thread.
    fn kind(
        threads: &Arc<AtomicUsize>,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Option<ErrorKind> {
        let done = apart(threads, Duration::from_millis(50), work);
        done.err().map(|error| error.kind())
    }

    #[test]
    fn nobody_waits_for_ever_and_threads_are_counted() {
        let threads = Arc::new(AtomicUsize::new(0));
        let settle = || {
            while threads.load(Ordering::Relaxed) > 0 {
                thread::yield_now();
            }
        };
        assert_eq!(kind(&threads, || Ok(())), None);
        settle();
        let mut held = Vec::new();
        while held.len() < THREADS_MAX {
            let (go_on, wait) = channel::<()>();
            held.push(go_on);
            let work = move || {
                let _ = wait.recv();
                Ok(())
            };
            assert_eq!(kind(&threads, work), Some(ErrorKind::TooLarge));
        }
        assert_eq!(kind(&threads, || Ok(())), Some(ErrorKind::Busy));
        drop(held);
        settle();
        assert_eq!(kind(&threads, || Ok(())), None);
    }
}
