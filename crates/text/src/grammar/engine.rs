//! The grammar compiler for one tokenizer, and its cache.

use super::bounded::{CheckedGrammar, Grammar};
use super::error::grammar_error;
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
use std::time::Duration;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};
use tabla_core::reserve::{self, HAS_THREADS};

/// llguidance processes grammars recursively. The deepest allowed grammar needs half of this.
const STACK_BYTES: usize = 64 << 20;
/// Compile-time limit. After it the thread continues in the background until llguidance returns.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of compile threads, including those that have timed out.
const THREADS_MAX: usize = 16;
/// Maximum number of cached grammars, and maximum length of their texts together in bytes.
const CACHE_ENTRIES_MAX: usize = 32;
const CACHE_BYTES_MAX: usize = 512 << 10;

/// Compiles grammars for the vocabulary of one tokenizer. Creating one takes some tenths of a
/// second and some ten megabytes, so create it once and share it.
pub struct GrammarEngine {
    tokenizer: Arc<Tokenizer>,
    factory: Arc<ParserFactory>,
    threads: Arc<AtomicUsize>,
    /// In order of use, most recent last.
    cache: Mutex<Vec<(String, Arc<CompiledGrammar>)>>,
}

impl GrammarEngine {
    /// Creates the engine for a tokenizer.
    ///
    /// # Errors
    /// `TooLarge` for a vocabulary over the limits, `Unsupported` for one without an
    /// end-of-generation token.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self> {
        let environment = vocabulary::environment(tokenizer).context("grammars")?;
        let mut factory = ParserFactory::new_simple(&environment).map_err(grammar_error)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self {
            tokenizer: tokenizer.clone(),
            factory: Arc::new(factory),
            threads: Arc::default(),
            cache: Mutex::default(),
        })
    }

    /// Compiles a grammar, or returns it from the cache.
    ///
    /// # Errors
    /// `Grammar` for a grammar that is invalid, unsupported or matches no text; `TooLarge` over the
    /// limits on size and time; `Busy` if too many grammars are being compiled.
    pub fn compile(&self, grammar: &Grammar) -> Result<Arc<CompiledGrammar>> {
        let checked = CheckedGrammar::new(grammar)?;
        let key = checked.key();
        if let Some(compiled) = self.find(&key) {
            return Ok(compiled);
        }
        let parser = self.compile_checked(checked)?;
        let compiled = Arc::new(CompiledGrammar {
            parser: Mutex::new(parser),
            tokenizer: self.tokenizer.clone(),
        });
        self.insert(key, &compiled);
        Ok(compiled)
    }

    /// Compiles a grammar without adding it to the cache.
    pub(super) fn check(&self, grammar: &Grammar) -> Result<()> {
        self.compile_checked(CheckedGrammar::new(grammar)?)
            .map(drop)
    }

    fn compile_checked(&self, grammar: CheckedGrammar) -> Result<Parser> {
        let factory = self.factory.clone();
        run_with_timeout(&self.threads, TIMEOUT, move || compile(&factory, grammar))
    }

    fn find(&self, key: &str) -> Option<Arc<CompiledGrammar>> {
        let mut cache = self.cache.lock();
        let at = cache.iter().position(|(other, _)| other == key)?;
        let entry = cache.remove(at);
        let compiled = entry.1.clone();
        cache.push(entry);
        Some(compiled)
    }

    fn insert(&self, key: String, compiled: &Arc<CompiledGrammar>) {
        let mut cache = self.cache.lock();
        cache.retain(|(other, _)| *other != key);
        cache.push((key, compiled.clone()));
        let mut bytes: usize = cache.iter().map(|(key, _)| key.len()).sum();
        let mut evicted = 0;
        while cache.len() - evicted > CACHE_ENTRIES_MAX || bytes > CACHE_BYTES_MAX {
            bytes -= cache[evicted].0.len();
            evicted += 1;
        }
        cache.drain(..evicted);
    }
}

/// Runs `work` on a thread with a large stack, and waits until `time` has passed. In builds without threads, it runs on
/// the stack of the program, without a limit of time.
fn run_with_timeout<T: Send + 'static>(
    threads: &Arc<AtomicUsize>,
    time: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let slot = ThreadSlot::acquire(threads)?;
    if !HAS_THREADS {
        return work();
    }
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        let _slot = slot;
        // Fails if the receiver has timed out.
        let _ = sender.send(work());
    };
    reserve::thread("tabla-grammar")
        .and_then(|thread| thread.stack_size(STACK_BYTES).spawn(run))
        .map_err(|e| {
            Error::new(ErrorKind::Memory, "failed to spawn a grammar thread").caused_by(e)
        })?;
    match receiver.recv_timeout(time) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => bail!(
            TooLarge,
            "compiling the grammar exceeds the limit of {} seconds",
            time.as_secs()
        ),
        Err(RecvTimeoutError::Disconnected) => bail!(Internal, "the grammar compiler panicked"),
    }
}

/// Compiles a grammar, on the thread.
fn compile(factory: &ParserFactory, grammar: CheckedGrammar) -> Result<Parser> {
    let grammar = match grammar {
        CheckedGrammar::Schema(schema) => TopLevelGrammar::from_json_schema(schema),
        CheckedGrammar::Lark(text) => TopLevelGrammar::from_lark(text),
        CheckedGrammar::Gbnf(text) => TopLevelGrammar::from_lark(gbnf::to_lark(&text)?),
    };
    let mut parser = Parser::new(factory.create_parser(grammar));
    if let Some(error) = parser.get_error() {
        return Err(grammar_error(error));
    }
    // The first mask fails for a grammar that matches no text.
    let first = parser.compute_mask_or_eos();
    first.map_err(|e| match grammar_error(e) {
        e if e.message() == "NoExtensionBias" => {
            Error::new(ErrorKind::Grammar, "the grammar matches no text")
        }
        e => e,
    })?;
    Ok(parser)
}

/// A slot for a compile thread, released on drop.
struct ThreadSlot(Arc<AtomicUsize>);

impl ThreadSlot {
    fn acquire(threads: &Arc<AtomicUsize>) -> Result<Self> {
        let slot = Self(threads.clone());
        if slot.0.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            bail!(
                Busy,
                "{THREADS_MAX} grammars are already being compiled, try again later"
            );
        }
        Ok(slot)
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for GrammarEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarEngine")
            .field("cached", &self.cache.lock().len())
            .finish_non_exhaustive()
    }
}

/// A compiled grammar.
pub struct CompiledGrammar {
    parser: Mutex<Parser>,
    tokenizer: Arc<Tokenizer>,
}

impl CompiledGrammar {
    /// Creates a matcher at the start of an output.
    pub fn matcher(&self) -> Matcher {
        let parser = self.parser.lock().deep_clone();
        Matcher::new(parser, self.tokenizer.clone())
    }

    /// Whether the grammar was compiled for `tokenizer`.
    pub fn is_for(&self, tokenizer: &Tokenizer) -> bool {
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

    /// Returns the kind of the error of `work`.
    fn error_kind(
        threads: &Arc<AtomicUsize>,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Option<ErrorKind> {
        let result = run_with_timeout(threads, Duration::from_millis(50), work);
        result.err().map(|error| error.kind())
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "a limit of time needs a thread")]
    fn compilation_times_out_and_threads_are_limited() {
        let threads = Arc::new(AtomicUsize::new(0));
        let wait_for_threads = || {
            while threads.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        };
        assert_eq!(error_kind(&threads, || Ok(())), None);
        wait_for_threads();
        let mut senders = Vec::new();
        while senders.len() < THREADS_MAX {
            let (sender, receiver) = channel::<()>();
            senders.push(sender);
            let work = move || {
                let _ = receiver.recv();
                Ok(())
            };
            assert_eq!(error_kind(&threads, work), Some(ErrorKind::TooLarge));
        }
        assert_eq!(error_kind(&threads, || Ok(())), Some(ErrorKind::Busy));
        drop(senders);
        wait_for_threads();
        assert_eq!(error_kind(&threads, || Ok(())), None);
    }
}
