//! A model shared by sessions: its properties, and the queue to the thread that owns its device.

use super::engine::Engine;
use super::request::Request;
use super::request_queue::{Message, RequestQueue};
use super::scheduler::Scheduler;
use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ComputeDigest, Embedding, Facts, LinkedTables, SpeechModel, TableId};
use crate::op::table::Table;
use crate::text::{ChatTemplates, CompiledGrammar, Grammar, GrammarEngine, Tokenizer};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// A loaded model. Clones are cheap handles to the same model and can be used from any thread.
#[derive(Clone)]
pub struct Model(Arc<Shared>);

struct Shared {
    facts: Facts,
    tables: Arc<[Table]>,
    profile: Profile,
    embedding: Embedding,
    tokenizer: Arc<Tokenizer>,
    chat_templates: Arc<ChatTemplates>,
    speech: Option<Arc<SpeechModel>>,
    compute_digest: ComputeDigest,
    digest: OnceLock<[u8; 32]>,
    provenance: String,
    #[cfg(all(feature = "gpu", feature = "test-support"))]
    gpu: Option<crate::exec::gpu::Device>,
    sessions: AtomicU64,
    role: OnceLock<Role>,
    grammars: Mutex<Option<Arc<GrammarEngine>>>,
    request_queue: Arc<RequestQueue>,
    thread: Option<JoinHandle<()>>,
}

/// Role of a model in speculative decoding. The thread of a target model waits for the thread of
/// its draft model; a model with both roles could deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Has a draft model.
    Target,
    /// Drafts tokens for another model.
    Draft,
}

impl Model {
    /// Starts the thread of a linked model.
    ///
    /// # Errors
    ///
    /// `Memory` if the thread cannot be started.
    pub(crate) fn new(linked: LinkedTables) -> Result<Self> {
        let request_queue = Arc::new(RequestQueue::new());
        let mut shared = Shared {
            facts: linked.facts.clone(),
            tables: linked.tables.clone(),
            profile: linked.executor.profile().clone(),
            embedding: linked.embedding.clone(),
            tokenizer: Arc::clone(&linked.tokenizer),
            chat_templates: Arc::clone(&linked.chat_templates),
            speech: linked.speech.clone(),
            compute_digest: Arc::clone(&linked.digest),
            digest: OnceLock::new(),
            provenance: linked.provenance.clone(),
            #[cfg(all(feature = "gpu", feature = "test-support"))]
            gpu: linked.gpu.clone(),
            sessions: AtomicU64::new(0),
            role: OnceLock::new(),
            grammars: Mutex::default(),
            request_queue: Arc::clone(&request_queue),
            thread: None,
        };
        let scheduler = Scheduler::new(Engine::new(linked));
        let thread = std::thread::Builder::new().name("tabla-model".to_string());
        let thread = thread.spawn(move || scheduler.serve(&request_queue));
        shared.thread = Some(thread.map_err(|e| {
            let message = "cannot start the model's thread";
            Error::new(ErrorKind::Memory, message).caused_by(e)
        })?);
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the properties of the model.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// Returns the chat templates of the model files.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.0.chat_templates
    }

    /// Returns the properties of the device.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Returns the properties of a speech model.
    pub(super) fn speech(&self) -> Option<&SpeechModel> {
        self.0.speech.as_deref()
    }

    /// Returns the embedding settings of the model files.
    pub fn embedding(&self) -> &Embedding {
        &self.0.embedding
    }

    /// Returns the maximum length of a text for embeddings in tokens, including special tokens.
    pub fn embedding_max_tokens(&self) -> u32 {
        let context = self.facts().context;
        let length = self.embedding().length;
        length.map_or(context, |length| length.min(context))
    }

    /// Returns the tables.
    pub fn tables(&self) -> &[Table] {
        &self.0.tables
    }

    /// Returns a table; of the step tables, the one with the fewest rows.
    pub fn table(&self, id: TableId) -> Option<&Table> {
        self.0.tables.iter().find(|table| table.name == id.name())
    }

    /// Returns a digest that identifies the model: of the architecture, its hyperparameters, and
    /// the name, storage type, shape and bytes of every tensor. Large tensors are sampled. The
    /// digest is computed on the first call.
    ///
    /// Device, precision, options, tokenizer and chat templates are not included. The same model in
    /// another file format or storage type has another digest.
    ///
    /// # Errors
    ///
    /// `State` if a file has changed since it was opened.
    pub fn digest(&self) -> Result<[u8; 32]> {
        if let Some(digest) = self.0.digest.get() {
            return Ok(*digest);
        }
        let digest = (self.0.compute_digest)()?;
        Ok(*self.0.digest.get_or_init(|| digest))
    }

    /// Returns everything except the model files that affects the bits of the KV cache, as text.
    pub(super) fn provenance(&self) -> &str {
        &self.0.provenance
    }

    /// Returns whether the model is an encoder, which only computes embeddings.
    pub fn is_encoder(&self) -> bool {
        self.table(TableId::Step).is_none()
    }

    /// Compiles a grammar for [`GenerateOptions::grammar`](crate::GenerateOptions::grammar). The
    /// first call takes some tenths of a second more. The last few grammars are cached.
    ///
    /// # Errors
    ///
    /// `Grammar` for a grammar that is invalid or matches nothing, `TooLarge` over the limits of
    /// size and time, `Unsupported` if the vocabulary has no stop token, `Busy` if too many
    /// grammars are being compiled.
    pub fn compile_grammar(&self, grammar: &Grammar) -> Result<Arc<CompiledGrammar>> {
        let mut engine_slot = self.0.grammars.lock();
        let engine = match &*engine_slot {
            Some(engine) => Arc::clone(engine),
            None => {
                Arc::clone(engine_slot.insert(Arc::new(GrammarEngine::new(&self.0.tokenizer)?)))
            }
        };
        drop(engine_slot);
        engine.compile(grammar)
    }

    /// Returns the GPU of the model, for tests of device loss.
    #[cfg(all(feature = "gpu", feature = "test-support"))]
    pub fn gpu(&self) -> Option<crate::exec::gpu::Device> {
        self.0.gpu.clone()
    }

    /// Returns a unique session number.
    pub(super) fn next_session(&self) -> u64 {
        self.0.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether two handles refer to the same model.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Assigns a role permanently. Returns whether the model has this role.
    pub(super) fn assign_role(&self, role: Role) -> bool {
        *self.0.role.get_or_init(|| role) == role
    }

    /// Sends a request to the model's thread. Every request ends, even if the thread fails.
    pub(super) fn start(&self, request: Request) {
        self.0.request_queue.send(Message::Start(request));
    }

    /// Runs `work` on the engine between two scheduler iterations, and waits for its result.
    ///
    /// # Errors
    ///
    /// Those of `work`; `Poisoned` if the model's thread has ended.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = channel();
        let work = move |engine: &mut Engine| {
            // Ignore that the receiver is gone.
            let _ = sender.send(work(engine));
        };
        self.0.request_queue.send(Message::Call(Box::new(work)));
        answer.recv().map_err(|_| Self::has_ended())?
    }

    /// The error if the model's thread has ended.
    pub(super) fn has_ended() -> Error {
        Error::new(
            ErrorKind::Poisoned,
            "the model's thread has ended: load the model again",
        )
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.request_queue.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread catches its panics: join returns no information.
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
