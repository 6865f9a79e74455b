//! A model that sessions share: what is known of it, and the way to the thread that has its device.

use super::engine::Engine;
use super::request::Request;
use super::request_queue::{Message, RequestQueue};
use super::scheduler::Scheduler;
use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Digesting, Embedding, Facts, LinkedTables, TableId};
use crate::op::table::Table;
use crate::text::{ChatTemplates, CompiledGrammar, Grammar, GrammarEngine, Tokenizer};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// A model, ready. It is a handle: copies are the same model, from any thread.
#[derive(Clone)]
pub struct Model(Arc<Shared>);

struct Shared {
    facts: Facts,
    tables: Arc<[Table]>,
    profile: Profile,
    embedding: Embedding,
    tokenizer: Arc<Tokenizer>,
    chat_templates: Arc<ChatTemplates>,
    digesting: Digesting,
    digest: OnceLock<[u8; 32]>,
    provenance: String,
    #[cfg(feature = "gpu")]
    gpu: Option<crate::exec::gpu::Device>,
    sessions: AtomicU64,
    role: OnceLock<Role>,
    grammars: Mutex<Option<Arc<GrammarEngine>>>,
    inbox: Arc<RequestQueue>,
    thread: Option<JoinHandle<()>>,
}

/// What a model is to others once there are drafts: its thread waits for that of its draft model, so
/// that none is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Others draft for it.
    Target,
    /// It drafts for others.
    Draft,
}

impl Model {
    /// Gives a linked model its thread.
    ///
    /// # Errors
    ///
    /// `Memory` where the thread cannot be had.
    pub(crate) fn new(linked: LinkedTables) -> Result<Self> {
        let inbox = Arc::new(RequestQueue::new());
        let mut shared = Shared {
            facts: linked.facts.clone(),
            tables: linked.tables.clone(),
            profile: linked.executor.profile().clone(),
            embedding: linked.embedding.clone(),
            tokenizer: Arc::clone(&linked.tokenizer),
            chat_templates: Arc::clone(&linked.chat_templates),
            digesting: Arc::clone(&linked.digest),
            digest: OnceLock::new(),
            provenance: linked.provenance.clone(),
            #[cfg(feature = "gpu")]
            gpu: linked
                .executor
                .device()
                .and_then(|gpu| gpu.downcast_ref())
                .cloned(),
            sessions: AtomicU64::new(0),
            role: OnceLock::new(),
            grammars: Mutex::default(),
            inbox: Arc::clone(&inbox),
            thread: None,
        };
        let scheduler = Scheduler::new(Engine::new(linked));
        let thread = std::thread::Builder::new().name("tabla-model".to_string());
        let thread = thread.spawn(move || scheduler.serve(&inbox));
        shared.thread = Some(thread.map_err(|e| {
            let message = "the model's thread cannot start";
            Error::new(ErrorKind::Memory, message).caused_by(e)
        })?);
        Ok(Self(Arc::new(shared)))
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// The chat templates that its files bring along.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.0.chat_templates
    }

    /// The facts of its device.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// What its files say of embeddings.
    pub fn embedding(&self) -> &Embedding {
        &self.0.embedding
    }

    /// The longest text that becomes an embedding, in tokens, its special ones among them.
    pub fn embedding_length(&self) -> u32 {
        let context = self.facts().context;
        let said = self.embedding().length;
        said.map_or(context, |length| length.min(context))
    }

    /// Its tables.
    pub fn tables(&self) -> &[Table] {
        &self.0.tables
    }

    /// One of its tables, the narrowest of those for steps.
    pub fn table(&self, id: TableId) -> Option<&Table> {
        self.0.tables.iter().find(|table| table.name == id.name())
    }

    /// What tells its files from those of other models: a digest of the architecture and its numbers,
    /// and of the name, storage type, shape and bytes of every tensor, of large ones of samples. It is
    /// computed when it is first asked for.
    ///
    /// Device, precision and options are no part of it, nor are tokenizer and templates. The same
    /// model in another format or storage type has another one.
    ///
    /// # Errors
    ///
    /// `State` where a file has changed since it was opened.
    pub fn digest(&self) -> Result<[u8; 32]> {
        if let Some(digest) = self.0.digest.get() {
            return Ok(*digest);
        }
        let digest = (self.0.digesting)()?;
        Ok(*self.0.digest.get_or_init(|| digest))
    }

    /// What the bits of its KV cache depend on beside its files, in words.
    pub(super) fn provenance(&self) -> &str {
        &self.0.provenance
    }

    /// Whether it yields embeddings alone.
    pub fn is_encoder(&self) -> bool {
        self.table(TableId::Step).is_none()
    }

    /// Compiles a grammar for answers. The first one takes some tenths of a second more; the last few
    /// are kept.
    ///
    /// # Errors
    ///
    /// `Grammar` for what is no grammar or lets nothing through, `TooLarge` over the limits on size and
    /// time, `Unsupported` where the vocabulary has nothing to end an answer with, `Busy` where too
    /// many are compiled at once.
    pub fn compile_grammar(&self, grammar: &Grammar) -> Result<Arc<CompiledGrammar>> {
        let mut made = self.0.grammars.lock();
        let engine = match &*made {
            Some(engine) => Arc::clone(engine),
            None => Arc::clone(made.insert(Arc::new(GrammarEngine::new(&self.0.tokenizer)?))),
        };
        drop(made);
        engine.compile(grammar)
    }

    /// The GPU that it is on: for tests that lose it.
    #[cfg(feature = "gpu")]
    #[doc(hidden)]
    pub fn gpu(&self) -> Option<crate::exec::gpu::Device> {
        self.0.gpu.clone()
    }

    /// A number that no other session of it has.
    pub(super) fn next_session(&self) -> u64 {
        self.0.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the two are the same model.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Gives it a role, which it keeps. Returns whether it has it.
    pub(super) fn takes(&self, role: Role) -> bool {
        *self.0.role.get_or_init(|| role) == role
    }

    /// Hands a request to its thread, which ends it whatever happens.
    pub(super) fn start(&self, request: Request) {
        self.0.inbox.send(Message::Start(request));
    }

    /// Has work done on the engine between two rounds, and waits for it.
    ///
    /// # Errors
    ///
    /// As of `work`; `Poisoned` where the thread has ended.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = channel();
        let work = move |engine: &mut Engine| {
            // Nobody waits any more where this fails.
            let _ = sender.send(work(engine));
        };
        self.0.inbox.send(Message::Call(Box::new(work)));
        let ended = |_| {
            Error::new(
                ErrorKind::Poisoned,
                "the model's thread has ended: load the model again",
            )
        };
        answer.recv().map_err(ended)?
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It catches its panics, so there is nothing to learn here.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("facts", &self.0.facts)
            .finish_non_exhaustive()
    }
}
