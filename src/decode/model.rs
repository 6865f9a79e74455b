//! A model shared by sessions: its properties, and the queue to the thread that owns its device.

use super::engine::Engine;
use super::hooks::{Adapter, Hooks, LinkedHooks};
use super::lost;
use super::request::Request;
use super::request_queue::{Message, RequestQueue};
use super::rows::output_width;
use super::scheduler::Scheduler;
use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::model::{
    CheckFiles, Classifier, ComputeDigest, Embedding, Facts, HookCompiler, HookedTables,
    LinkedTables, SpeechModel, TableId,
};
use crate::op::hooks::HookSpec;
use crate::op::table::Table;
use crate::reserve::{self, HAS_THREADS};
use crate::text::{ChatTemplates, CompiledGrammar, Grammar, GrammarEngine, Tokenizer};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
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
    classifier: Option<Arc<Classifier>>,
    tokenizer: Arc<Tokenizer>,
    chat_templates: Arc<ChatTemplates>,
    speech: Option<Arc<SpeechModel>>,
    compute_digest: ComputeDigest,
    check_files: CheckFiles,
    hook_compiler: Arc<dyn HookCompiler>,
    digest: OnceLock<[u8; 32]>,
    provenance: String,
    #[cfg(feature = "gpu")]
    gpu: Option<crate::exec::gpu::Device>,
    /// Number of the next hooks.
    hooks: Arc<AtomicU32>,
    role: OnceLock<Role>,
    grammars: Mutex<Option<Arc<GrammarEngine>>>,
    request_queue: Arc<RequestQueue>,
    runner: Runner,
}

/// Where the scheduler of a model runs.
enum Runner {
    /// On the model's thread; `None` when it has been joined.
    Thread(Option<JoinHandle<()>>),
    /// On the caller's thread, whenever it waits for output: the build has no threads.
    Caller(Mutex<Box<Scheduler>>),
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
            classifier: linked.classifier.clone(),
            tokenizer: Arc::clone(&linked.tokenizer),
            chat_templates: Arc::clone(&linked.chat_templates),
            speech: linked.speech.clone(),
            compute_digest: Arc::clone(&linked.digest),
            check_files: Arc::clone(&linked.check_files),
            hook_compiler: Arc::clone(&linked.hook_compiler),
            digest: OnceLock::new(),
            provenance: linked.provenance.clone(),
            #[cfg(feature = "gpu")]
            gpu: linked.gpu.clone(),
            hooks: Arc::new(AtomicU32::new(1)),
            role: OnceLock::new(),
            grammars: Mutex::default(),
            request_queue: Arc::clone(&request_queue),
            runner: Runner::Thread(None),
        };
        let scheduler = Scheduler::new(Engine::new(linked));
        shared.runner = match HAS_THREADS {
            false => Runner::Caller(Mutex::new(Box::new(scheduler))),
            true => {
                let serve = move || scheduler.serve(&request_queue);
                let thread = reserve::thread("tabla-model").and_then(|thread| thread.spawn(serve));
                Runner::Thread(Some(thread.map_err(|e| {
                    let message = "cannot start the model's thread";
                    Error::new(ErrorKind::Memory, message).caused_by(e)
                })?))
            }
        };
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

    /// Returns the number of dimensions of an embedding; 0 if the model has no embedding table.
    pub fn embedding_dim(&self) -> usize {
        self.dim_of_poolings(self.embedding().pooling.len())
    }

    /// Returns the number of dimensions of an embedding with this number of pooling methods.
    pub(super) fn dim_of_poolings(&self, count: usize) -> usize {
        let width = self.table_width();
        match self.embedding().dense.last() {
            Some(last) if width > 0 => last.bias.len(),
            _ => width * count.max(1),
        }
    }

    /// Returns the number of numbers of a row of the embedding table; 0 if there is none.
    pub(super) fn table_width(&self) -> usize {
        self.table(TableId::Embed).map_or(0, output_width)
    }

    /// Returns the classification head; `None` if the model has none.
    pub fn classifier(&self) -> Option<&Classifier> {
        self.0.classifier.as_deref()
    }

    /// Returns the maximum length of a text for embeddings and classification in tokens, including
    /// special tokens.
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

    /// Returns the table of an encoder, for embeddings or for classification.
    pub(super) fn encoder_table(&self) -> Option<&Table> {
        let table = self.table(TableId::Classify);
        table.or_else(|| self.table(TableId::Embed))
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

    /// Checks that no file has changed whose pages the device reads while it computes. A model whose files have
    /// changed fails every request; load it again.
    ///
    /// # Errors
    ///
    /// `State` or `Io` with the path of a file that was overwritten or truncated.
    pub fn check_files(&self) -> Result<()> {
        (self.0.check_files)()
    }

    /// Checks that neither the device of the model nor its thread has failed, without work on the device. A model with
    /// such a failure fails every request; load it again.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, `Memory` or `Device`, with the reason; `Poisoned` if the model's thread has ended.
    pub fn check_device(&self) -> Result<()> {
        #[cfg(feature = "gpu")]
        self.0
            .gpu
            .as_ref()
            .map_or(Ok(()), |gpu| gpu.check_reported())?;
        match self.0.request_queue.is_closed() {
            true => Err(Self::has_ended()),
            false => Ok(()),
        }
    }

    /// Returns everything except the model files that affects the bits of the KV cache, as text.
    pub(super) fn provenance(&self) -> &str {
        &self.0.provenance
    }

    /// Returns whether the model is an encoder, which only computes embeddings or classifies texts.
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
        self.grammar_engine()?.compile(grammar)
    }

    /// Returns the grammar engine of the model's vocabulary. The first call creates it, which takes
    /// some tenths of a second.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the vocabulary has no stop token, `TooLarge` over the limits of a vocabulary.
    pub fn grammar_engine(&self) -> Result<Arc<GrammarEngine>> {
        let mut engine = self.0.grammars.lock();
        Ok(match &*engine {
            Some(engine) => Arc::clone(engine),
            None => Arc::clone(engine.insert(Arc::new(GrammarEngine::new(&self.0.tokenizer)?))),
        })
    }

    /// Reads a LoRA adapter for this model: a folder of `peft` with `adapter_config.json` and
    /// `adapter_model.safetensors`, or a GGUF file of llama.cpp. [`Model::hooks_with`] applies it.
    ///
    /// # Errors
    ///
    /// `Io` for a file that cannot be read, `Format` for an invalid file, `Argument` for an adapter of
    /// another model, `Unsupported` for other methods than LoRA and for modules that are not matrices of
    /// layers. The message names the file and the module.
    pub fn read_adapter(&self, path: &Path) -> Result<Adapter> {
        let weights = self.0.hook_compiler.read_adapter(path)?;
        Ok(Adapter::new(weights, Arc::clone(&self.0.tables)))
    }

    /// Compiles and links tables with these hooks. Sessions use them after
    /// [`Session::set_hooks`](crate::Session::set_hooks); other sessions are not affected.
    ///
    /// # Errors
    ///
    /// See [`Model::hooks_with`].
    pub fn hooks(&self, spec: &HookSpec) -> Result<Hooks> {
        self.hooks_with(spec, &[])
    }

    /// Same as [`Model::hooks`], with LoRA adapters of this model. A session uses each with scale 1 until
    /// [`Session::set_adapter_scales`](crate::Session::set_adapter_scales); sessions with the same hooks
    /// and other scales are decoded together.
    ///
    /// # Errors
    ///
    /// `Argument` for a pattern that matches no point, with the points that the model has, and for an
    /// edit whose vector or columns do not fit a point; `TooLarge` if the captured values of a token
    /// are too large; `Memory`; `Unsupported` for speech models.
    pub fn hooks_with(&self, spec: &HookSpec, adapters: &[Adapter]) -> Result<Hooks> {
        if let Some(other) = adapters.iter().find(|a| !a.belongs_to(&self.0.tables)) {
            bail!(
                Argument,
                "the adapter {} was read for another model",
                other.name()
            );
        }
        let id = self.0.hooks.fetch_add(1, Ordering::Relaxed);
        let weights: Vec<_> = adapters.iter().map(Adapter::weights).collect();
        let hooked = self.0.hook_compiler.compile(id, spec, &weights)?;
        let HookedTables { program, layout } = hooked;
        let tables = self.call(move |engine| engine.link_hooks(program))?;
        let request_queue = Arc::clone(&self.0.request_queue);
        Ok(Hooks::new(LinkedHooks {
            id,
            layout,
            positions: spec.positions.clone(),
            adapters: adapters.len(),
            ids: Arc::clone(&self.0.hooks),
            scaled: Mutex::default(),
            tables,
            model: Arc::clone(&self.0.tables),
            unlink: Box::new(move |tables| {
                let first = tables.first();
                let unlink = move |engine: &mut Engine| engine.unlink_hooks(first);
                request_queue.send(Message::Call(Box::new(unlink)));
            }),
        }))
    }

    /// Checks that hooks belong to this model.
    pub(super) fn check_hooks(&self, hooks: &Hooks) -> Result<()> {
        if !hooks.belong_to(&self.0.tables) {
            bail!(Argument, "the hooks belong to another model");
        }
        Ok(())
    }

    /// Computes the logits that the model's final norm and output projection give for rows of the
    /// residual stream, `[rows, dim]`, and writes them to `out`, `[rows, vocab]`: the logit lens
    /// (nostalgebraist 2020) for the residual stream of an intermediate layer.
    ///
    /// # Errors
    ///
    /// `Argument` if the lengths do not fit or the hooks belong to another model; `State` for an
    /// encoder.
    pub fn lens(&self, hooks: &Hooks, residual: &[f32], out: &mut [f32]) -> Result<()> {
        self.check_hooks(hooks)?;
        let [dim, vocab] = [self.facts().dim, self.facts().vocab].map(|n| n as usize);
        let rows = residual.len() / dim;
        if residual.len() != rows * dim || Some(out.len()) != rows.checked_mul(vocab) {
            bail!(
                Argument,
                "expected rows of {dim} numbers and {vocab} logits for each, got {} numbers and {} logits",
                residual.len(),
                out.len()
            );
        }
        let (hooks, residual) = (hooks.clone(), residual.to_vec());
        out.copy_from_slice(&self.call(move |engine| engine.lens(&hooks, &residual))?);
        Ok(())
    }

    /// Returns the GPU of the model, for tests of device loss.
    #[doc(hidden)]
    #[cfg(feature = "gpu")]
    pub fn gpu(&self) -> Option<crate::exec::gpu::Device> {
        self.0.gpu.clone()
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
    /// Those of `work`; `Memory` if it is used up; `Poisoned` if the model's thread has ended.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        reserve::check()?;
        let (sender, answer) = channel();
        let work = move |engine: &mut Engine| {
            let result = work(engine);
            if let Err(e) = &result {
                lost::free_if_lost(&mut engine.linked, e);
            }
            // Ignore that the receiver is gone.
            let _ = sender.send(result);
        };
        self.0.request_queue.send(Message::Call(Box::new(work)));
        self.receive(&answer)?
    }

    /// Waits for an answer of the model's thread.
    ///
    /// # Errors
    ///
    /// `Poisoned` if the model's thread has ended.
    pub(super) fn receive<T>(&self, answer: &Receiver<T>) -> Result<T> {
        let received = match self.runs_on_caller() {
            false => answer.recv().ok(),
            true => self.run_until(|| match answer.try_recv() {
                Err(TryRecvError::Empty) => None,
                received => Some(received.ok()),
            }),
        };
        received.ok_or_else(Self::has_ended)
    }

    /// Returns whether the scheduler runs on the threads that wait for output.
    pub(super) fn runs_on_caller(&self) -> bool {
        matches!(self.0.runner, Runner::Caller(_))
    }

    /// Handles the messages to a scheduler without a thread, unless it runs: a session may end within an iteration.
    pub(super) fn handle_messages(&self) {
        if let Runner::Caller(scheduler) = &self.0.runner
            && let Some(mut scheduler) = scheduler.try_lock()
        {
            scheduler.handle_messages(&self.0.request_queue);
        }
    }

    /// Runs an iteration of the scheduler, if it has no thread.
    pub(super) fn run_iteration(&self) {
        if let Runner::Caller(scheduler) = &self.0.runner {
            let mut scheduler = scheduler.lock();
            scheduler.handle_messages(&self.0.request_queue);
            scheduler.run_iteration();
        }
    }

    /// Runs iterations of a scheduler without a thread until there is a result. Calls have theirs before the first.
    pub(super) fn run_until<T>(&self, mut result: impl FnMut() -> Option<T>) -> T {
        self.handle_messages();
        loop {
            if let Some(result) = result() {
                return result;
            }
            self.run_iteration();
        }
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
        if let Runner::Thread(thread) = &mut self.runner
            && let Some(thread) = thread.take()
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
