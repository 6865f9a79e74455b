/*
 * Tabla: runtime for language, embedding and speech models.
 *
 *     TablaModel *model = tabla_load_model("model.gguf", 0);
 *     if (model == NULL) fprintf(stderr, "%s\n", tabla_last_error());
 *     tabla_generate(model, "Once upon a time", NULL, callback, NULL, NULL);
 *     tabla_free_model(model);
 *
 * Contract:
 *
 *  1. Status. A status is 0 (TABLA_OK) or a TABLA_ERROR_ code. Codes are never changed or reused;
 *     treat an unknown code as an error. tabla_last_error() returns the message and
 *     tabla_last_error_code() the code of the last call that failed on the calling thread; a
 *     successful call does not change them. The message is valid until the next call that fails.
 *  2. Results are written only on success. The content of output arrays of floats is unspecified
 *     after a failure. Functions that fill an array write the number of values to count. If the
 *     array is NULL, they only write count. If capacity is less than count, they return
 *     TABLA_ERROR_TOO_LARGE.
 *  3. Handles are numbers that the library resolves, not addresses. A handle that is NULL, freed,
 *     never created, or of another type is TABLA_ERROR_HANDLE, never undefined behaviour; so is
 *     freeing twice. Handles can be freed in any order. Every model has a default session, which
 *     tabla_model_session() returns and which is freed with the model. tabla_generate(),
 *     tabla_prefill() and tabla_embed() are short forms of functions on this session, and
 *     tabla_transcribe() runs on it.
 *  4. Threads. Any number of sessions and threads share a model. A session executes one call at a
 *     time, from any thread. A second call at the same time is TABLA_ERROR_BUSY, and a call from the
 *     session's own callback is TABLA_ERROR_REENTRANT; neither waits. Functions that only read a
 *     model (properties, tokenizer, chat templates) can be called at any time, and so can functions
 *     that cancel or free. These work from any thread and from callbacks: a running call ends early,
 *     and the memory is released after it has returned.
 *  5. Callbacks run on the thread of the call, during the call. The log callback can run on any
 *     thread. Callbacks must return: no C++ exception and no longjmp() may leave them.
 *  6. Versions. If the first field of a struct is struct_size, set it to the sizeof of the struct
 *     before every call. If the struct is shorter (older program), missing options have their
 *     defaults and missing results are not written. If it is longer (newer program), the additional
 *     fields must be zero, and additional results are set to zero. Integer constants are validated.
 *  7. A panic (fatal internal error) is TABLA_ERROR_PANIC. Later calls on the session are
 *     TABLA_ERROR_POISONED, or calls on all sessions of the model if the panic was inside the model.
 *     Poisoned handles can be freed.
 *  8. After fork(), every call in the child process is TABLA_ERROR_FORKED if the parent had loaded a
 *     model. The parent is not affected.
 *  9. Memory that the library allocates belongs to a handle; never pass it to free(). Returned
 *     strings belong to the library. A failed allocation is TABLA_ERROR_MEMORY.
 * 10. The library prints nothing (GPU drivers may), installs no signal handlers except by
 *     tabla_catch_file_faults(), and never exits the process. Log messages go to
 *     tabla_log_set_callback(). All exported names start with tabla_.
 *
 * Calling threads need a stack of at least 512 KiB. Strings are NUL-terminated UTF-8, and paths are
 * NUL-terminated bytes of the file system, unless a length is passed. docs/ABI.md explains the
 * contract and lists the codes.
 */

#ifndef TABLA_H
#define TABLA_H

/* Generated from crates/capi by `cargo xtask bless`. Do not edit. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* ===== Status codes and handles ===== */

/** The call succeeded. */
#define TABLA_OK (0)

/** Status of a call: 0, or one of the `TablaError` codes. */
typedef int32_t TablaStatus;

/** Kind of an error. The numbers are part of the C ABI: never change or reuse one. */
enum TablaError
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** An argument is out of its range, or a pointer is NULL. */
    TABLA_ERROR_ARGUMENT = 1,
    /** An operating system error, such as a missing file or a read error. */
    TABLA_ERROR_IO = 2,
    /** The file is damaged or violates its format. */
    TABLA_ERROR_FORMAT = 3,
    /** The file is valid but uses a feature that this build does not support. */
    TABLA_ERROR_UNSUPPORTED = 4,
    /** A size exceeds a limit of the model, the device or this build. */
    TABLA_ERROR_TOO_LARGE = 5,
    /** The tokenizer cannot be built, or cannot encode this text. */
    TABLA_ERROR_TOKENIZER = 6,
    /** A grammar or a schema is invalid or not supported. */
    TABLA_ERROR_GRAMMAR = 7,
    /** A memory allocation failed. */
    TABLA_ERROR_MEMORY = 8,
    /** The device reported an error. */
    TABLA_ERROR_DEVICE = 9,
    /** The device was lost; the model must be loaded again. */
    TABLA_ERROR_DEVICE_LOST = 10,
    /** The caller cancelled the operation. */
    TABLA_ERROR_CANCELLED = 11,
    /**
     * The call is invalid in the current state of the object: an empty sequence, a full context, a
     * generation in progress.
     */
    TABLA_ERROR_STATE = 12,
    /**
     * An internal invariant is violated: a bug in the library, or a model that computes numbers that are
     * not finite.
     */
    TABLA_ERROR_INTERNAL = 13,
    /** The library panicked inside the call; the handle is poisoned. */
    TABLA_ERROR_PANIC = 14,
    /** The handle is NULL, stale, of another type, or was freed. */
    TABLA_ERROR_HANDLE = 15,
    /** A resource is in use; the call may succeed later. */
    TABLA_ERROR_BUSY = 16,
    /** A callback called the object that invoked it. */
    TABLA_ERROR_REENTRANT = 17,
    /** A panic left the object unusable; create a new one. */
    TABLA_ERROR_POISONED = 18,
    /** The process was forked after the model was loaded. */
    TABLA_ERROR_FORKED = 19,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TablaError TablaError;
#else
typedef int32_t TablaError;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A loaded model, with its default session. Opaque: the pointer is a number that only the library
 * resolves.
 */
typedef struct TablaModel TablaModel;

/** A sequence of tokens on a model, with its KV cache. Opaque. */
typedef struct TablaSession TablaSession;

/** Answers to many prompts. Opaque. */
typedef struct TablaBatch TablaBatch;

/** A compiled grammar. Opaque. */
typedef struct TablaGrammar TablaGrammar;

/** A streaming parser of answers. Opaque. */
typedef struct TablaParser TablaParser;

/** A transcription that is read segment by segment. Opaque. */
typedef struct TablaTranscription TablaTranscription;

/** Hooks of a model: values to capture and to change. Opaque. */
typedef struct TablaHooks TablaHooks;

/** A LoRA adapter of a model. Opaque. */
typedef struct TablaAdapter TablaAdapter;

/** A control vector: a vector per layer that is added to the output of the layer. Opaque. */
typedef struct TablaControlVector TablaControlVector;

/* ===== Load a model ===== */

/** `TablaLoadOptions.device`: a hardware GPU if there is one, otherwise the CPU. */
#define TABLA_DEVICE_AUTO (0)

/** `TablaLoadOptions.device`: the CPU. */
#define TABLA_DEVICE_CPU (1)

/** `TablaLoadOptions.device`: a GPU, including a software one. Loading fails if there is none. */
#define TABLA_DEVICE_GPU (2)

/** `TablaLoadOptions.precision`: activations may be int8 or bf16; the KV cache is f16. */
#define TABLA_PRECISION_FAST (0)

/**
 * `TablaLoadOptions.precision`: every matrix product is computed in f32 on dequantized weights;
 * the KV cache is f32.
 */
#define TABLA_PRECISION_EXACT (1)

/** `TablaLoadOptions.weights`: packed if the weights fit in memory, otherwise mapped. */
#define TABLA_WEIGHTS_AUTO (0)

/**
 * `TablaLoadOptions.weights`: memory-mapped from the file: processes share its pages, and loading
 * reads no weights.
 */
#define TABLA_WEIGHTS_MAPPED (1)

/** `TablaLoadOptions.weights`: copied to memory in a layout for faster decoding. */
#define TABLA_WEIGHTS_PACKED (2)

/**
 * `TablaLoadOptions.load_mode`: read into memory from file systems of other machines or of
 * programs (NFS, SMB, FUSE) if it fits, otherwise mapped.
 */
#define TABLA_LOAD_AUTO (0)

/**
 * `TablaLoadOptions.load_mode`: memory-mapped from the file, which must not be truncated or
 * overwritten while the model is used.
 */
#define TABLA_LOAD_MMAP (1)

/**
 * `TablaLoadOptions.load_mode`: copied to memory while loading, in huge pages: later changes of
 * the file have no effect, except that sessions cannot be saved, loaded or moved. On other systems
 * than Linux the file is mapped.
 */
#define TABLA_LOAD_READ (2)

/** `TablaLoadOptions.lm_head_type`: the type in the file. */
#define TABLA_LM_HEAD_AS_STORED (0)

/** `TablaLoadOptions.lm_head_type`: quantized during loading, so that each token reads fewer bytes. */
#define TABLA_LM_HEAD_Q8_0 (1)

/** `TablaLoadOptions.lm_head_type`: quantized during loading, smaller than `q8_0`. */
#define TABLA_LM_HEAD_Q6_K (2)

/** `TablaLoadOptions.cache_type`: f16, or f32 with exact precision. */
#define TABLA_CACHE_DEFAULT (0)

/** `TablaLoadOptions.cache_type`: f16. */
#define TABLA_CACHE_F16 (1)

/** `TablaLoadOptions.cache_type`: f32. */
#define TABLA_CACHE_F32 (2)

/** `TablaLoadOptions.cache_type`: about half the size of f16. */
#define TABLA_CACHE_Q8_0 (3)

/** Disables the prefix cache: `TablaLoadOptions.prefix_bytes`. */
#define TABLA_PREFIX_NONE (UINT64_MAX)

/** Experts of all layers: `TablaLoadOptions.cpu_expert_layers`. */
#define TABLA_CPU_EXPERTS_ALL (UINT32_MAX)

/**
 * Called at the end of each of the 18 stages of loading, in order. Receives the number and name of
 * the stage, its duration, and the fraction of completed stages (0 to 1). Return 0 to continue;
 * any other value cancels the load with `TABLA_ERROR_CANCELLED`.
 */
typedef int32_t (*TablaProgressCallback)(uint32_t stage,
                                         const char *name,
                                         double milliseconds,
                                         float done,
                                         void *user_data);

/** Options of loading a model. Zeros are the defaults. */
typedef struct TablaLoadOptions {
    /** `sizeof(TablaLoadOptions)`. */
    uint32_t struct_size;
    /** Device that runs the model: `TABLA_DEVICE_AUTO` (default), `_CPU` or `_GPU`. */
    int32_t device;
    /** Precision of the computation: `TABLA_PRECISION_FAST` (default) or `_EXACT`. */
    int32_t precision;
    /** Number of CPU threads; 0: one for each physical core. Default 0. */
    uint32_t threads;
    /**
     * Context length of the KV cache in tokens; 0: the length that the model was trained with, at
     * most 4096; 4294967295: that length. Models with LongRoPE use their long factors if it is
     * over their original context length. Default 0.
     */
    uint32_t max_context;
    /** Memory layout of weights on a CPU: `TABLA_WEIGHTS_AUTO` (default), `_MAPPED` or `_PACKED`. */
    int32_t weights;
    /** Directory of shaders that override the embedded ones. NULL: only the embedded ones. */
    const char *shader_path;
    /** Called at the end of every stage, or NULL. */
    TablaProgressCallback progress;
    /** Passed to `progress`. */
    void *user_data;
    /**
     * Type of the output projection (`lm_head`): `TABLA_LM_HEAD_AS_STORED` (default), `_Q8_0` or
     * `_Q6_K`.
     */
    int32_t lm_head_type;
    /**
     * Not 0: a model that generates text also supports embeddings. Encoder models always do.
     * Default 0.
     */
    uint32_t embeddings;
    /**
     * Maximum number of sequences that are computed at the same time, at most 256, each of
     * `max_context` tokens; 0: 1. There may be more sessions than this: they take turns. For a
     * speech model: number of recordings that are transcribed at the same time, at most 32.
     * Default 0.
     */
    uint32_t sequences;
    /** Type of the KV cache: `TABLA_CACHE_DEFAULT` (default), `_F16`, `_F32` or `_Q8_0`. */
    int32_t cache_type;
    /** Number of prompt tokens in one batch (chunked prefill); 0: chosen for the device. Default 0. */
    uint32_t chunk_tokens;
    /** Not 0: a GPU supports speculative decoding. A CPU always does. Default 0. */
    uint32_t gpu_speculation;
    /**
     * Additional KV cache memory for the prefix cache, in bytes. The prefix cache keeps keys and
     * values of freed sequences for prompts with the same prefix. 0: no additional memory, only
     * cache pages that active sequences do not use. `TABLA_PREFIX_NONE`: no prefix cache. Default
     * 0.
     */
    uint64_t prefix_bytes;
    /**
     * The GPU: its number or a part of its name. If it is not found, loading fails and does not
     * fall back to the CPU. NULL: the best one.
     */
    const char *adapter;
    /**
     * Directory of tuning files for GPUs. A GPU uses the file for this model and adapter if there
     * is one, which may change the order of sums. NULL: no tuning.
     */
    const char *tuning_path;
    /**
     * Directory of the GPU pipeline cache, which keeps compiled kernels for the next load, if the
     * driver supports it. NULL: no cache.
     */
    const char *pipeline_cache_path;
    /**
     * Names of samplers in the order of their use, separated by `;` (docs/sampling.md). Samplers
     * that are not listed are off. NULL: all, in the order of that page.
     */
    const char *samplers;
    /**
     * Layout of `I2_S` tensors, which files do not store: `128`, `64` or `1x4`. NULL: the usual
     * layout.
     */
    const char *i2s_layout;
    /** Not 0: only GPU features that every WebGPU device supports are used. Default 0. */
    uint32_t gpu_baseline;
    /**
     * Not 0: the head of the model for multi-token prediction (MTP) is loaded, for speculative
     * decoding with a drafting head. Default 0.
     */
    uint32_t mtp;
    /**
     * EAGLE-3 drafter for the model, for speculative decoding with a drafting head: a GGUF file or
     * a directory of Hugging Face. NULL: none.
     */
    const char *drafter_path;
    /**
     * Number of layers, from the first one on, whose experts are computed on the CPU while a GPU
     * computes the rest of the model; their weights stay in host memory. 0: none.
     * `TABLA_CPU_EXPERTS_ALL`: all. Without effect on a CPU and in a model without experts.
     * Default 0.
     */
    uint32_t cpu_expert_layers;
    /**
     * How a CPU reads weights that it uses in place: those that are not packed: `TABLA_LOAD_AUTO`
     * (default), `_MMAP` or `_READ`.
     */
    int32_t load_mode;
    /**
     * Directory of compiled models: the first load of a model compiles it there, and later ones
     * open the compiled file, which takes milliseconds. At most 32 GiB; the models that were used
     * the longest time ago are deleted. NULL: no cache.
     */
    const char *compiled_cache_path;
    /**
     * Maximum number of seconds for which a GPU may compute without a result: then the device
     * counts as lost. 0: 120, of a software GPU 3600. Default 0.
     */
    uint32_t gpu_timeout;
    /** Must be 0. Default 0. */
    uint32_t reserved;
} TablaLoadOptions;

/**
 * Loads a model with the default options: the short form of `tabla_model_load`. Returns NULL on
 * failure; `tabla_last_error` has the reason. `path` NULL: the small built-in story model.
 * `max_context`: context length in tokens; 0: the length that the model was trained with, at most
 * 4096.
 *
 * `path` is NULL or a C string.
 */
struct TablaModel *tabla_load_model(const char *path, uint32_t max_context);

/**
 * Loads a model with options. Returns NULL on failure; `tabla_last_error` has the reason. `path`
 * NULL: the small built-in story model. NULL options are the defaults.
 *
 * `path` is NULL or a C string; `options` is NULL or points to a struct with `struct_size` set,
 * whose pointers are NULL or C strings.
 */
struct TablaModel *tabla_model_load(const char *path, const struct TablaLoadOptions *options);

/** Function that is called when the library does not read the data of a model in memory any more. */
typedef void (*TablaRelease)(void *user_data);

/**
 * Loads a model that is in memory: a GGUF file, not one of several, or a ggml file of Whisper.
 * Returns NULL on failure; `tabla_last_error` has the reason. NULL options are the defaults.
 *
 * `release` NULL: the data is copied. Otherwise it is not: it must stay unchanged until the library
 * calls `release` with `user_data`, once, on any thread. It does so when the model, its sessions and
 * batches are freed and their calls have returned; before it returns NULL; for a NULL pointer, too.
 * For data that is never freed, such as an array of the program, `release` can be a function that
 * does nothing.
 *
 * `data` is NULL or points to `size` bytes, which stay valid until `release` is called; `options` is
 * NULL or points to a struct with `struct_size` set, whose pointers are NULL or C strings.
 */
struct TablaModel *tabla_load_memory(const void *data,
                                     size_t size,
                                     TablaRelease release,
                                     void *user_data,
                                     const struct TablaLoadOptions *options);

/**
 * Frees a model and its default session, and returns at once. A running call is cancelled, and
 * stays valid until it returns. The memory is released when the last session or batch of the model
 * is freed. NULL is an error.
 */
TablaStatus tabla_free_model(struct TablaModel *model);

/* ===== Facts about the library, the devices and a model ===== */

/** Version of this ABI. It increases when programs must be recompiled. */
#define TABLA_ABI_VERSION (1)

/** Returns the ABI version of the library, to compare with `TABLA_ABI_VERSION` of the header. */
uint32_t tabla_abi_version(void);

/** Returns the version of the library, for example `0.1.0`. */
const char *tabla_version(void);

/**
 * Writes the devices of this machine as a JSON object: `cpu`, and `gpus` in the order of their
 * numbers for `TablaLoadOptions.adapter`. No NUL is added. If `text` is NULL, only `count` is
 * written.
 *
 * `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
 */
TablaStatus tabla_device_list(char *text, size_t capacity, size_t *count);

/**
 * Makes truncated model files errors: a call that reads a page of a mapped file that is no longer there fails with
 * `TABLA_ERROR_IO`, and so do later calls with that model, instead of the process being ended by `SIGBUS`. Without it,
 * a model file must not be truncated while it is used, unless it was loaded with `TABLA_LOAD_READ`.
 *
 * Installs a handler of `SIGBUS` for the whole process, which passes other faults on to the handler that was
 * installed before. A handler that is installed afterwards must do the same. Where the system has no such signal,
 * the result is `TABLA_ERROR_UNSUPPORTED`.
 */
TablaStatus tabla_catch_file_faults(void);

/** Properties of a model. Set `struct_size` before the call. */
typedef struct TablaModelInfo {
    /** `sizeof(TablaModelInfo)`. */
    uint32_t struct_size;
    /** Number of layers. */
    uint32_t layers;
    /** Hidden size (width of the residual stream). */
    uint32_t dim;
    /** Number of attention heads (query heads). */
    uint32_t heads;
    /** Number of key and value heads. */
    uint32_t kv_heads;
    /** Size of an attention head. */
    uint32_t head_dim;
    /** Size of the feed-forward layer. */
    uint32_t ffn;
    /** Vocabulary size in tokens: the length of a row of logits. */
    uint32_t vocab;
    /** Context length of the KV cache, in tokens. */
    uint32_t context;
    /** Context length that the model was trained with, in tokens. */
    uint32_t context_trained;
    /** Number of parameters: elements of all tensors. */
    uint64_t parameters;
    /** Size of the model file or files, in bytes. */
    uint64_t file_bytes;
    /** Size of the KV cache, in bytes. */
    uint64_t cache_bytes;
    /** Size of the scratch buffers, in bytes. */
    uint64_t scratch_bytes;
    /** Name of the architecture in the file, truncated if too long, NUL-terminated. */
    char architecture[32];
    /** Name of the device, truncated if too long, NUL-terminated. */
    char device[96];
    /** Beginning-of-sequence token, or `TABLA_NO_TOKEN`. */
    uint32_t bos_token;
    /**
     * End-of-sequence token, or `TABLA_NO_TOKEN`. `tabla_model_stop_token_ids` returns all tokens
     * that end an answer.
     */
    uint32_t eos_token;
    /**
     * Number of dimensions of an embedding; 0 if embeddings were not enabled when the model was
     * loaded.
     */
    uint32_t embedding_dim;
    /** Maximum length of a text to embed or to classify, in tokens. */
    uint32_t embedding_max_tokens;
    /** Not 0: the model is an encoder, which only computes embeddings or classifies texts. */
    uint32_t is_encoder;
    /** Maximum number of sequences that are computed at the same time. */
    uint32_t sequences;
    /** Number of labels of the classification head; 0 if the model has none. */
    uint32_t labels;
    /** 0. */
    uint32_t reserved;
} TablaModelInfo;

/**
 * Writes properties of a model: `struct_size` bytes. Fields that this library does not support
 * become 0.
 *
 * `info` points to a struct with `struct_size` set.
 */
TablaStatus tabla_model_info(const struct TablaModel *model, struct TablaModelInfo *info);

/**
 * Writes a 32-byte digest that identifies the model files: of the architecture, its parameters and
 * the tensors (large tensors are sampled). It does not depend on the device or the load options.
 *
 * `digest` points to 32 bytes.
 */
TablaStatus tabla_model_digest(const struct TablaModel *model, uint8_t *digest);

/** Text format of `tabla_model_table`, one line for each command. */
#define TABLA_TABLE_TEXT (0)

/** JSON format of `tabla_model_table`: an array with one object for each command. */
#define TABLA_TABLE_JSON (1)

/**
 * Writes a dispatch table of a model, the list of commands that the device replays. `name` is
 * `step`, `batch`, `embed` or `classify`; NULL: the first table. If several tables have the name, the
 * smallest one for at least `tokens` tokens is used. `format` is `TABLA_TABLE_TEXT` or `TABLA_TABLE_JSON`.
 * No NUL is added. If `text` is NULL, only `count` is written.
 *
 * `name` is NULL or a C string; `text` is NULL or points to space for `capacity` bytes; `count`
 * points to a `size_t`.
 */
TablaStatus tabla_model_table(const struct TablaModel *model,
                              const char *name,
                              uint32_t tokens,
                              int32_t format,
                              char *text,
                              size_t capacity,
                              size_t *count);

/* ===== Tokenize ===== */

/** No token: a model without a BOS or EOS token, or a piece that is not a token. */
#define TABLA_NO_TOKEN (UINT32_MAX)

/** Adds the special tokens at the start or end of a text, such as BOS: `tabla_model_tokenize`. */
#define TABLA_TOKENIZE_ADD_SPECIAL (1)

/** Parses names of special tokens in the text as those tokens. Do not use it for text from users. */
#define TABLA_TOKENIZE_PARSE_SPECIAL (2)

/**
 * Encodes UTF-8 text to token ids. `flags` is a combination of `TABLA_TOKENIZE_*`. If `tokens` is
 * NULL, only `count` is written.
 *
 * `text` points to `text_bytes` bytes; `tokens` is NULL or points to space for `capacity` ids;
 * `count` points to a `size_t`.
 */
TablaStatus tabla_model_tokenize(const struct TablaModel *model,
                                 const char *text,
                                 size_t text_bytes,
                                 uint32_t flags,
                                 uint32_t *tokens,
                                 size_t capacity,
                                 size_t *count);

/**
 * Decodes token ids to bytes, which are UTF-8 if the tokens end at character boundaries. No NUL is
 * added. If `text` is NULL, only `count` is written.
 *
 * `tokens` points to `tokens_count` ids; `text` is NULL or points to space for `capacity` bytes;
 * `count` points to a `size_t`.
 */
TablaStatus tabla_model_detokenize(const struct TablaModel *model,
                                   const uint32_t *tokens,
                                   size_t tokens_count,
                                   char *text,
                                   size_t capacity,
                                   size_t *count);

/**
 * Writes the bytes of one token as they appear in a text; for a special token, its name. No NUL is
 * added. If `text` is NULL, only `count` is written.
 *
 * `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
 */
TablaStatus tabla_model_token_bytes(const struct TablaModel *model,
                                    uint32_t token,
                                    char *text,
                                    size_t capacity,
                                    size_t *count);

/**
 * Writes the stop tokens of this model, which end an answer. If `tokens` is NULL, only `count` is
 * written.
 *
 * `tokens` is NULL or points to space for `capacity` ids; `count` points to a `size_t`.
 */
TablaStatus tabla_model_stop_token_ids(const struct TablaModel *model,
                                       uint32_t *tokens,
                                       size_t capacity,
                                       size_t *count);

/* ===== Generate with the default session of a model ===== */

/** No speculative decoding: `TablaGenerateOptions.speculate`. */
#define TABLA_SPECULATE_OFF (0)

/** Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens. */
#define TABLA_SPECULATE_LOOKUP (1)

/** Draft model: drafts tokens with the model `TablaGenerateOptions.draft_model`. */
#define TABLA_SPECULATE_DRAFT (2)

/**
 * Drafting head: drafts tokens with a head of the model, which `TablaLoadOptions.mtp` or
 * `TablaLoadOptions.drafter_path` loads.
 */
#define TABLA_SPECULATE_HEAD (3)

/** A value that is added to the logit of a token. */
typedef struct TablaLogitBias {
    /** Token id. */
    uint32_t token;
    /** Value to add; minus infinity bans the token. */
    float bias;
} TablaLogitBias;

/**
 * Options of sampling and generation; docs/sampling.md has the formulas and the order of samplers.
 * A value outside its range is an error, in C `TABLA_ERROR_ARGUMENT`, which names the option and
 * the range. Zeros are not the defaults: initialize the struct with `tabla_generate_options_init`,
 * which also sets `struct_size` and sets pointers to NULL.
 */
typedef struct TablaGenerateOptions {
    /** `sizeof(TablaGenerateOptions)`. */
    uint32_t struct_size;
    /**
     * Maximum number of tokens to generate; a stop token or a full context ends the output too. 0:
     * only the prompt is computed; 4294967295: no maximum. Default all.
     */
    uint32_t max_tokens;
    /**
     * Temperature: divisor of the logits; 0: always the likeliest token, which no sampler removes.
     * Range 0 to 100, default 0.8.
     */
    float temperature;
    /** Number of likeliest tokens that are kept; 0: off. Default 40. */
    uint32_t top_k;
    /**
     * Probability mass of the likeliest tokens that are kept (nucleus sampling, arXiv 1904.09751);
     * 1: off. Range 0 to 1, default 0.95.
     */
    float top_p;
    /**
     * Minimum probability of a token relative to the likeliest one (arXiv 2407.01082); 0: off.
     * Range 0 to 1, default 0.05.
     */
    float min_p;
    /**
     * Repetition penalty: divisor of positive logits of the last `repeat_last_n` tokens, factor of
     * negative ones (CTRL, arXiv 1909.05858); 1: off. Range 0.01 to 100, default 1.
     */
    float repetition_penalty;
    /** Number of recent tokens that the penalties apply to. Range 0 to 1024, default 64. */
    uint32_t repeat_last_n;
    /** Seed of the random numbers; the same seed gives the same tokens. Default 0. */
    uint64_t seed;
    /** Number of tokens in one submission to the device; 0: adaptive. Default 0. */
    uint32_t burst;
    /** Not 0: the model's own stop tokens do not end the answer; `stop_token_ids` do. Default 0. */
    uint32_t ignore_eos;
    /**
     * Not 0: when the context is full, the older half of the sequence is discarded, and the rest
     * is computed again, instead of ending the answer. Default 0.
     */
    uint32_t context_shift;
    /**
     * Number of tokens at the start of the sequence that a context shift keeps, at most half of
     * the context. Default 0.
     */
    uint32_t n_keep;
    /** Minimum number of tokens before a stop token is allowed. Default 0. */
    uint32_t min_tokens;
    /**
     * Number of likeliest tokens to return with log-probabilities for each position, at most 20;
     * 0: only the sampled token; less than 0: none. Default -1.
     */
    int32_t logprobs;
    /**
     * Amount subtracted from the logit of a token for each occurrence among the last
     * `repeat_last_n`; 0: off. Range -100 to 100, default 0.
     */
    float frequency_penalty;
    /**
     * Amount subtracted once from the logit of a token that occurs among the last `repeat_last_n`;
     * 0: off. Range -100 to 100, default 0.
     */
    float presence_penalty;
    /**
     * Probability mass of the most typical tokens that are kept (locally typical sampling, arXiv
     * 2202.00666); 1: off. Range 0 to 1, default 1.
     */
    float typical_p;
    /**
     * Maximum distance of a logit from the largest one, in standard deviations (top-n-sigma, arXiv
     * 2411.07641); 0: off. Range 0 to 100, default 0.
     */
    float top_n_sigma;
    /**
     * Maximum change of the temperature with the entropy of the remaining tokens, in both
     * directions (dynamic temperature, by kalomaze); 0: off. Range 0 to 100, default 0.
     */
    float dynatemp_range;
    /** Exponent of the entropy in the dynamic temperature. Range 0 to 100, default 1. */
    float dynatemp_exponent;
    /**
     * Probability of removing all tokens above `xtc_threshold` except the least likely of them
     * (XTC, by p-e-w); 0: off. Range 0 to 1, default 0.
     */
    float xtc_probability;
    /** Minimum probability of the tokens that XTC removes. Range 0 to 1, default 0.1. */
    float xtc_threshold;
    /**
     * Amount subtracted from the logit of a token that extends a repetition, times `dry_base` for
     * each token over `dry_allowed_length` (DRY, by p-e-w); 0: off. Range 0 to 100, default 0.
     */
    float dry_multiplier;
    /** Growth of the DRY penalty with each repeated token. Range 1 to 100, default 1.75. */
    float dry_base;
    /** Length of the longest repetition without a DRY penalty, in tokens. Default 2. */
    uint32_t dry_allowed_length;
    /** Number of recent tokens that DRY searches for repetitions. Default all. */
    uint32_t dry_penalty_last_n;
    /**
     * Target surprise of a token in bits, which replaces all samplers that remove tokens (Mirostat
     * 2, arXiv 2007.14966); 0: off. Range 0 to 100, default 0.
     */
    float mirostat_tau;
    /** Learning rate of Mirostat. Range 0 to 1, default 0.1. */
    float mirostat_eta;
    /**
     * Speculative decoding: `TABLA_SPECULATE_OFF`, `_LOOKUP`, `_DRAFT` or `_HEAD`. It changes the
     * speed and not the tokens. Default 0.
     */
    int32_t speculate;
    /** Must be 0. Default 0. */
    uint32_t reserved;
    /** Draft model with the same vocabulary, for `TABLA_SPECULATE_DRAFT`; otherwise NULL. */
    const struct TablaModel *draft_model;
    /**
     * Grammar that constrains the answer, or NULL. With `chat`, the reasoning before it is free,
     * and a stop token within the reasoning closes the reasoning.
     */
    const struct TablaGrammar *grammar;
    /**
     * Stop strings, which end the answer: at most 64, of at most 1024 bytes each. A stop string is
     * not part of the returned text; its tokens stay in the sequence. With `chat`, they do not
     * apply to the reasoning.
     */
    const char *const *stop;
    /** Number of elements of `stop`. */
    size_t stop_count;
    /** Additional stop tokens, at most 32 together with the model's own. */
    const uint32_t *stop_token_ids;
    /** Number of elements of `stop_token_ids`. */
    size_t stop_token_ids_count;
    /** Values that are added to the logits of tokens, at most 512; minus infinity bans a token. */
    const struct TablaLogitBias *logit_bias;
    /** Number of elements of `logit_bias`. */
    size_t logit_bias_count;
    /** Strings that end a repetition for DRY. NULL: line break, `:`, `"` and `*`. */
    const char *const *dry_sequence_breakers;
    /** Number of elements of `dry_sequence_breakers`. */
    size_t dry_sequence_breakers_count;
    /**
     * Options that the prompt was encoded with by `tabla_model_tokenize_chat`: the answer may have
     * reasoning in the format of their chat template. NULL: the prompt is no conversation.
     * `tabla_session_chat` and `tabla_session_begin_chat` use their own.
     */
    const struct TablaChatOptions *chat;
    /**
     * Maximum number of tokens of the reasoning, with `chat`; then it is closed. Less than 0: no
     * maximum. Default -1.
     */
    int64_t reasoning_budget;
} TablaGenerateOptions;

/**
 * Sets options to the defaults. `size` is `sizeof(TablaGenerateOptions)`.
 *
 * `options` points to `size` bytes.
 */
TablaStatus tabla_generate_options_init(struct TablaGenerateOptions *options, size_t size);

/** The answer has not ended: `TablaPiece.finish`, `TablaStats.finish`. */
#define TABLA_FINISH_NONE (-1)

/** Finish reason: a stop token, a stop string, or the end of the grammar. `TablaStats.finish`. */
#define TABLA_FINISH_STOP (0)

/** Finish reason: `max_tokens` tokens were generated. */
#define TABLA_FINISH_LENGTH (1)

/** Finish reason: the context is full. */
#define TABLA_FINISH_CONTEXT (2)

/** Finish reason: the callback returned another value than 0, or `tabla_session_end` was called. */
#define TABLA_FINISH_CALLBACK (3)

/** Finish reason: `tabla_session_cancel` or `tabla_batch_cancel` was called. */
#define TABLA_FINISH_CANCELLED (4)

/** Finish reason: an error. In a batch, `TablaPiece.status` is its code. */
#define TABLA_FINISH_FAILED (5)

/** Statistics of an answer. Set `struct_size` before the call. */
typedef struct TablaStats {
    /** `sizeof(TablaStats)`. */
    uint32_t struct_size;
    /** Number of prompt tokens. */
    uint32_t prompt_tokens;
    /** Duration of prefill, in milliseconds. */
    double prompt_ms;
    /** Duration of decoding, in milliseconds. */
    double predicted_ms;
    /** Number of generated tokens. */
    uint32_t tokens;
    /** Finish reason: `TABLA_FINISH_STOP`, ...; `TABLA_FINISH_NONE` while the answer runs. */
    int32_t finish;
    /** Number of draft tokens of speculative decoding. */
    uint32_t drafted_tokens;
    /** Number of accepted draft tokens. */
    uint32_t accepted_tokens;
} TablaStats;

/**
 * Receives every token: its id and the text that it completes. The text is empty while a UTF-8
 * character is incomplete or a stop string may have started; text that is still held back at the
 * end comes in a last call with `TABLA_NO_TOKEN`. `text` is NUL-terminated after `text_bytes`
 * bytes, and valid during the call. Return 0 to continue; any other value ends the answer.
 */
typedef int32_t (*TablaTokenCallback)(uint32_t token,
                                      const char *text,
                                      size_t text_bytes,
                                      void *user_data);

/**
 * Generates an answer with the default session of a model: the short form of
 * `tabla_session_generate`.
 *
 * Arguments as for `tabla_session_generate`.
 */
TablaStatus tabla_generate(struct TablaModel *model,
                           const char *prompt,
                           const struct TablaGenerateOptions *options,
                           TablaTokenCallback callback,
                           void *user_data,
                           struct TablaStats *stats);

/**
 * Appends tokens to the sequence of the default session of a model: the short form of
 * `tabla_session_prefill`.
 *
 * `tokens` points to `count` ids.
 */
TablaStatus tabla_prefill(struct TablaModel *model, const uint32_t *tokens, size_t count);

/* ===== Sessions ===== */

/**
 * Returns the default session of a model, which `tabla_generate`, `tabla_prefill` and
 * `tabla_embed` use; every call returns the same handle. All functions of sessions accept it,
 * except `tabla_session_free`: the model owns it, and `tabla_free_model` frees it. Returns NULL on
 * failure; `tabla_last_error` has the reason.
 */
struct TablaSession *tabla_model_session(struct TablaModel *model);

/**
 * Creates a session with an empty sequence. Returns NULL on failure; `tabla_last_error` has the
 * reason. Sessions of a model are computed at the same time, at most `TablaLoadOptions.sequences`
 * of them, including the default session; calls on further sessions wait. A session keeps its
 * model alive: free them in any order.
 */
struct TablaSession *tabla_session_new(const struct TablaModel *model);

/**
 * Creates a session with a copy of the sequence. Returns NULL on failure; `tabla_last_error` has
 * the reason. Nothing is recomputed: the KV cache is shared (copy-on-write).
 */
struct TablaSession *tabla_session_fork(struct TablaSession *session);

/**
 * Continues a session on another load of its model, after `TABLA_ERROR_DEVICE_LOST`. The sequence
 * is kept, and computed again when it is needed. A further answer without a prompt, with the same
 * seed, goes on as the one that failed would have. The session must not have hooks.
 */
TablaStatus tabla_session_move(struct TablaSession *session, const struct TablaModel *model);

/**
 * Saves a session to a file, including its KV cache. The file is created only when it is complete.
 *
 * `path` is a C string.
 */
TablaStatus tabla_session_save(struct TablaSession *session, const char *path);

/**
 * Loads a session that `tabla_session_save` saved. Returns NULL on failure; `tabla_last_error` has
 * the reason. The whole file is validated, also against the model, before it is used.
 *
 * `path` is a C string.
 */
struct TablaSession *tabla_session_load(const struct TablaModel *model, const char *path);

/**
 * Frees a session and returns at once. A running call is cancelled, and stays valid until it
 * returns: keep the data of its callback until then. The default session of a model cannot be
 * freed: that is `TABLA_ERROR_ARGUMENT`.
 */
TablaStatus tabla_session_free(struct TablaSession *session);

/**
 * Writes the tokens of the sequence, both prompt and generated ones. If `tokens` is NULL, only
 * `count` is written.
 *
 * `tokens` is NULL or points to space for `capacity` ids; `count` points to a `size_t`.
 */
TablaStatus tabla_session_tokens(const struct TablaSession *session,
                                 uint32_t *tokens,
                                 size_t capacity,
                                 size_t *count);

/**
 * Removes all tokens after the first `keep` ones from the sequence. 0 removes all tokens, which
 * resets the session.
 */
TablaStatus tabla_session_truncate(struct TablaSession *session, size_t keep);

/**
 * Appends tokens to the sequence and runs the model on them.
 *
 * `tokens` points to `count` ids.
 */
TablaStatus tabla_session_prefill(struct TablaSession *session,
                                  const uint32_t *tokens,
                                  size_t count);

/**
 * Samples the next token, appends it to the sequence and writes it to `token`. Only the sampling
 * options are used. NULL options are the defaults.
 *
 * `options` is NULL or points to a struct with `struct_size` set; `token` points to space for
 * an id.
 */
TablaStatus tabla_session_step(struct TablaSession *session,
                               const struct TablaGenerateOptions *options,
                               uint32_t *token);

/** Logits after the last token only: `tabla_session_logits`. */
#define TABLA_LOGITS_LAST (0)

/** Logits after every token of the sequence. */
#define TABLA_LOGITS_ALL (1)

/**
 * Writes logits. `TABLA_LOGITS_LAST`: `[vocab]`, after the last token. `TABLA_LOGITS_ALL`:
 * `[tokens, vocab]`, after every token of the sequence. `capacity` and `count` are numbers of
 * floats. If `out` is NULL, only `count` is written.
 *
 * `out` is NULL or points to space for `capacity` floats; `count` points to a `size_t`.
 */
TablaStatus tabla_session_logits(struct TablaSession *session,
                                 int32_t rows,
                                 float *out,
                                 size_t capacity,
                                 size_t *count);

/**
 * Appends a prompt to the sequence, runs the model on it, and generates an answer. An empty or
 * NULL prompt continues from the sequence as it is. NULL options are the defaults. `callback` and
 * `stats` may be NULL.
 *
 * `prompt` is NULL or a C string; `options` is NULL or points to a struct with `struct_size`
 * set; `stats` likewise.
 */
TablaStatus tabla_session_generate(struct TablaSession *session,
                                   const char *prompt,
                                   const struct TablaGenerateOptions *options,
                                   TablaTokenCallback callback,
                                   void *user_data,
                                   struct TablaStats *stats);

/**
 * Cancels the current call or answer of a session, from any thread. Later calls are not affected.
 * During decoding the call returns `TABLA_OK` with `TABLA_FINISH_CANCELLED`, and its callback
 * receives no further token. During prefill it returns `TABLA_ERROR_CANCELLED` after the current
 * chunk; completed chunks stay in the sequence.
 */
TablaStatus tabla_session_cancel(const struct TablaSession *session);

/** Log-probability of a token, before logit biases and samplers. */
typedef struct TablaLogprob {
    /** Token id. */
    uint32_t token;
    /** Natural logarithm of the probability. */
    float logprob;
} TablaLogprob;

/**
 * A piece of an answer: one token. Set `struct_size` before the call. Pointers are not NULL,
 * except `top_logprobs` if there are no tokens, and are valid until the next call on the session
 * or batch.
 */
typedef struct TablaPiece {
    /** `sizeof(TablaPiece)`. */
    uint32_t struct_size;
    /**
     * Token id; `TABLA_NO_TOKEN` for text that was held back to the end, and for the end of the
     * answer.
     */
    uint32_t token;
    /**
     * Text that the token completes, NUL-terminated. It is empty while a UTF-8 character is
     * incomplete or a stop string may have started.
     */
    const char *text;
    /** Length of the text in bytes. */
    size_t text_bytes;
    /**
     * `TABLA_FINISH_NONE`, or the reason why the answer ended. The piece has then no token and no
     * text, except the error message of `TABLA_FINISH_FAILED`.
     */
    int32_t finish;
    /** Log-probability of the token (natural logarithm); NaN unless `logprobs` requests it. */
    float logprob;
    /** Log-probabilities of the likeliest tokens at this position, in descending order. */
    const struct TablaLogprob *top_logprobs;
    /** Number of elements of `top_logprobs`. */
    size_t top_logprobs_count;
    /** Number of the request in its batch, from `tabla_batch_add`; otherwise 0. */
    size_t request;
    /** Error code of an answer in a batch with `TABLA_FINISH_FAILED`; otherwise 0. */
    TablaStatus status;
} TablaPiece;

/**
 * Starts an answer that `tabla_session_next` returns piece by piece. Appends the prompt to the
 * sequence, if there is one, and runs the model on it, as `tabla_session_generate` does. The model
 * generates while pieces are read; an answer that is not read does not block others. NULL options
 * are the defaults. Until the answer ends, the session only accepts `tabla_session_next`,
 * `tabla_session_end`, `tabla_session_stats`, `tabla_session_cancel` and `tabla_session_free`.
 *
 * `prompt` is NULL or a C string; `options` is NULL or points to a struct with `struct_size` set.
 */
TablaStatus tabla_session_begin(struct TablaSession *session,
                                const char *prompt,
                                const struct TablaGenerateOptions *options);

/**
 * Waits for the next piece of the answer. After the last piece, `finish` is the reason why the
 * answer ended, and the session accepts other calls; another `tabla_session_next` is
 * `TABLA_ERROR_STATE`. An error also ends the answer.
 *
 * `piece` points to a struct with `struct_size` set.
 */
TablaStatus tabla_session_next(struct TablaSession *session, struct TablaPiece *piece);

/**
 * Ends the answer early. Pieces that were read stay in the sequence, later tokens are removed.
 * Does nothing if no answer is in progress.
 */
TablaStatus tabla_session_end(struct TablaSession *session);

/**
 * Writes the statistics so far of the answer in progress, or those of the last answer that was
 * started with `tabla_session_begin`. Call it between other calls on the session.
 *
 * `stats` points to a struct with `struct_size` set.
 */
TablaStatus tabla_session_stats(const struct TablaSession *session, struct TablaStats *stats);

/* ===== Batches: answers to many prompts, read by one thread ===== */

/**
 * Creates an empty batch. Returns NULL on failure; `tabla_last_error` has the reason. At most
 * `TablaLoadOptions.sequences` answers are computed at the same time; the others wait. One thread
 * reads all of them with `tabla_batch_next`. A batch keeps its model alive.
 */
struct TablaBatch *tabla_batch_new(const struct TablaModel *model);

/**
 * Adds a prompt, as token ids, and starts its answer without waiting. `request` is the number of
 * the request, counted from 0. NULL options are the defaults. At most 512 answers can be in
 * progress; a further one is `TABLA_ERROR_BUSY`: read some to their end first.
 *
 * `tokens` points to `count` ids; `options` is NULL or points to a struct with `struct_size` set;
 * `request` points to a `size_t`.
 */
TablaStatus tabla_batch_add(struct TablaBatch *batch,
                            const uint32_t *tokens,
                            size_t count,
                            const struct TablaGenerateOptions *options,
                            size_t *request);

/**
 * Waits for the next piece of any answer; `TablaPiece.request` is the number of its request.
 * Answers take turns. The last piece of an answer has a `finish` reason. A failed answer has
 * `TABLA_FINISH_FAILED`, the error code in `status` and the message in `text`; the other answers
 * continue.
 *
 * `piece` points to a struct with `struct_size` set.
 */
TablaStatus tabla_batch_next(struct TablaBatch *batch, struct TablaPiece *piece);

/**
 * Writes the number of answers in progress.
 *
 * `count` points to a `size_t`.
 */
TablaStatus tabla_batch_pending(const struct TablaBatch *batch, size_t *count);

/**
 * Writes the statistics of the answer that ended last. `prompt_ms` is 0: prompts of several
 * answers are computed together.
 *
 * `stats` points to a struct with `struct_size` set.
 */
TablaStatus tabla_batch_stats(const struct TablaBatch *batch, struct TablaStats *stats);

/** Cancels the answer to a request, from any thread. Does nothing if the answer has ended. */
TablaStatus tabla_batch_cancel(const struct TablaBatch *batch, size_t request);

/** Frees a batch and cancels its answers. */
TablaStatus tabla_batch_free(struct TablaBatch *batch);

/* ===== Grammars ===== */

/** Any JSON object: `tabla_grammar_new`. */
#define TABLA_GRAMMAR_JSON_OBJECT (0)

/** JSON that matches a JSON schema. */
#define TABLA_GRAMMAR_JSON_SCHEMA (1)

/** Text that matches a regular expression as a whole. */
#define TABLA_GRAMMAR_REGEX (2)

/** Text of a grammar in Lark syntax. */
#define TABLA_GRAMMAR_LARK (3)

/** Text of a grammar in GBNF, the syntax of llama.cpp. */
#define TABLA_GRAMMAR_GBNF (4)

/**
 * Compiles a grammar for a model's vocabulary. Returns NULL on failure; `tabla_last_error` has the
 * reason. `kind` is one of `TABLA_GRAMMAR_*`; `text` is the grammar, NULL for any JSON object. Any
 * number of answers can use a grammar at the same time: `TablaGenerateOptions.grammar`. Texts over
 * 64 KiB, schemas over 256 KiB, and grammars that take several seconds to compile are
 * `TABLA_ERROR_TOO_LARGE`.
 *
 * `text` is NULL or a C string.
 */
struct TablaGrammar *tabla_grammar_new(const struct TablaModel *model,
                                       int32_t kind,
                                       const char *text);

/** Frees a grammar. Answers that use it continue. */
TablaStatus tabla_grammar_free(struct TablaGrammar *grammar);

/* ===== Chats ===== */

/** Options of rendering a conversation. Zeros are the defaults. */
typedef struct TablaChatOptions {
    /** `sizeof(TablaChatOptions)`. */
    uint32_t struct_size;
    /** Not 0: the start of the assistant's answer (generation prompt) is not appended. Default 0. */
    uint32_t no_generation_prompt;
    /**
     * Name or source of a chat template; do not accept it from users. NULL: the model's own, or
     * one that its special tokens identify.
     */
    const char *chat_template;
    /**
     * JSON array of tools in the format of the OpenAI API. If the chat template does not describe
     * tools, a system message does, and a log message says so. NULL: none.
     */
    const char *tools;
    /** JSON array of documents, for templates that support retrieval. NULL: none. */
    const char *documents;
    /**
     * JSON object of additional template variables, for example `{"enable_thinking": false}`.
     * NULL: none.
     */
    const char *chat_template_kwargs;
    /**
     * Effort of the reasoning: `none` disables it, other values such as `low` and `high` enable
     * it. Sets the template variable of the same name, and `enable_thinking`, unless
     * `chat_template_kwargs` does; a log message reports a template that reads neither. NULL:
     * `enable_thinking` is true.
     */
    const char *reasoning_effort;
    /**
     * Not 0: an answer has at most one tool call (`parallel_tool_calls` false in OpenAI's API):
     * grammars allow one, and a parser ends with it. Default 0.
     */
    uint32_t no_parallel_tool_calls;
    /** Must be 0. Default 0. */
    uint32_t reserved;
} TablaChatOptions;

/**
 * Renders a conversation with the model's chat template. `messages` is a JSON array of messages in
 * the format of OpenAI chat completions; NULL options are the defaults. No NUL is added. If `text`
 * is NULL, only `count` is written. Use `tabla_model_tokenize_chat` for input of the model: the
 * rendered text does not distinguish special tokens of the template from the same names in a
 * message.
 *
 * `messages` is a C string; `options` is NULL or points to a struct with `struct_size` set, whose
 * pointers are NULL or C strings; `text` is NULL or points to space for `capacity` bytes; `count`
 * points to a `size_t`.
 */
TablaStatus tabla_model_apply_chat_template(const struct TablaModel *model,
                                            const char *messages,
                                            const struct TablaChatOptions *options,
                                            char *text,
                                            size_t capacity,
                                            size_t *count);

/**
 * Encodes a conversation with the model's chat template. Only the template produces special
 * tokens; their names in a message are encoded as text. Otherwise the same as
 * `tabla_model_apply_chat_template`.
 *
 * Arguments as for `tabla_model_apply_chat_template`; `tokens` is NULL or points to space for
 * `capacity` ids.
 */
TablaStatus tabla_model_tokenize_chat(const struct TablaModel *model,
                                      const char *messages,
                                      const struct TablaChatOptions *options,
                                      uint32_t *tokens,
                                      size_t capacity,
                                      size_t *count);

/**
 * Answers a conversation. Replaces the sequence with the encoded conversation
 * (`tabla_model_tokenize_chat`) and generates the next message. The common prefix with the
 * previous sequence is not recomputed. If the call fails, the sequence may contain a part of the
 * conversation. The text includes the markup of reasoning and tool calls, which `tabla_parser_new`
 * parses. Otherwise the same as `tabla_session_generate`.
 *
 * `messages` is a C string; `chat` is NULL or points to a struct with `struct_size` set, whose
 * pointers are NULL or C strings; the rest as for `tabla_session_generate`.
 */
TablaStatus tabla_session_chat(struct TablaSession *session,
                               const char *messages,
                               const struct TablaChatOptions *chat,
                               const struct TablaGenerateOptions *options,
                               TablaTokenCallback callback,
                               void *user_data,
                               struct TablaStats *stats);

/**
 * Starts an answer to a conversation, as `tabla_session_chat` does. `tabla_session_next` returns
 * it piece by piece, as after `tabla_session_begin`.
 *
 * Arguments as for `tabla_session_chat`.
 */
TablaStatus tabla_session_begin_chat(struct TablaSession *session,
                                     const char *messages,
                                     const struct TablaChatOptions *chat,
                                     const struct TablaGenerateOptions *options);

/**
 * Compiles a grammar that forces a call of one of `TablaChatOptions.tools`, in the tool-call
 * format of the model's chat template. Returns NULL on failure; `tabla_last_error` has the reason.
 * `function` is the name of the tool, which is called once; NULL: any tools, one or several times
 * unless `TablaChatOptions.no_parallel_tool_calls` is set. No tools are `TABLA_ERROR_ARGUMENT`.
 *
 * `chat` points to a struct with `struct_size` set, whose pointers are NULL or C strings;
 * `function` is NULL or a C string.
 */
struct TablaGrammar *tabla_grammar_new_tool_call(const struct TablaModel *model,
                                                 const struct TablaChatOptions *chat,
                                                 const char *function);

/**
 * Creates a parser. Returns NULL on failure; `tabla_last_error` has the reason. `chat` are the
 * options that the conversation was rendered with: the template and the tools determine the format
 * of reasoning and tool calls. `prompt` is the rendered conversation
 * (`tabla_model_apply_chat_template`), which may already start the reasoning, or NULL.
 *
 * `chat` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
 * strings; `prompt` is NULL or a C string.
 */
struct TablaParser *tabla_parser_new(const struct TablaModel *model,
                                     const struct TablaChatOptions *chat,
                                     const char *prompt);

/**
 * Parses the next piece of an answer: its token (`TABLA_NO_TOKEN` if there is none) and its text.
 * Sets `parts` to the completed parts, a JSON array that is often empty, of `{"content": "..."}`,
 * `{"reasoning_content": "..."}` and `{"tool_call": {"index", "id", "name", "arguments"}}`. `id`
 * is null if the model wrote none; `arguments` is JSON in a string. A tool call is returned when
 * it is complete. With `TablaChatOptions.no_parallel_tool_calls`, nothing follows the first one:
 * end the answer then. `parts` is valid until the next call on the parser.
 *
 * `text` points to `text_bytes` bytes; `parts` points to a pointer.
 */
TablaStatus tabla_parser_push(struct TablaParser *parser,
                              uint32_t token,
                              const char *text,
                              size_t text_bytes,
                              const char **parts);

/**
 * Ends the answer and sets `parts` to the remaining parts, in the format of `tabla_parser_push`.
 * Further calls of `tabla_parser_push` fail.
 *
 * `parts` points to a pointer.
 */
TablaStatus tabla_parser_finish(struct TablaParser *parser, const char **parts);

/** Frees a parser. */
TablaStatus tabla_parser_free(struct TablaParser *parser);

/* ===== Embeddings, reranking and classification ===== */

/** `TablaEmbedOptions.pooling`: as configured by the model's files. */
#define TABLA_POOLING_MODEL (0)

/** `TablaEmbedOptions.pooling`: mean of all token embeddings of the text. */
#define TABLA_POOLING_MEAN (1)

/** `TablaEmbedOptions.pooling`: embedding of the first token (CLS). */
#define TABLA_POOLING_CLS (2)

/** `TablaEmbedOptions.pooling`: embedding of the last token. */
#define TABLA_POOLING_LAST (3)

/** `TablaEmbedOptions.pooling`: maximum of each dimension over all tokens. */
#define TABLA_POOLING_MAX (4)

/** Options of embeddings. Zeros are the defaults. */
typedef struct TablaEmbedOptions {
    /** `sizeof(TablaEmbedOptions)`. */
    uint32_t struct_size;
    /**
     * Pooling of token embeddings: `TABLA_POOLING_MODEL` (default), `_MEAN`, `_CLS`, `_LAST` or
     * `_MAX`.
     */
    int32_t pooling;
    /**
     * Number of leading dimensions to return, for models trained with Matryoshka representation
     * learning; 0: all. Default 0.
     */
    uint32_t dimensions;
    /**
     * Greater than 0: embeddings are normalized to length 1. Less than 0: they are not. 0: as
     * configured by the model's files, or length 1 if they do not say. Default 0.
     */
    int32_t normalize;
    /**
     * Not 0: texts that are too long are truncated; otherwise they are an error, in C
     * `TABLA_ERROR_TOO_LARGE`. Default 0.
     */
    uint32_t truncate;
    /** Must be 0. Default 0. */
    uint32_t reserved;
    /**
     * Name of the model's prompt to prepend to every text, `""` for none. NULL: the model's
     * default, if there is one.
     */
    const char *prompt_name;
} TablaEmbedOptions;

/**
 * Writes the embeddings of texts with the default session of a model: the short form of
 * `tabla_session_embed`.
 *
 * Arguments as for `tabla_session_embed`.
 */
TablaStatus tabla_embed(struct TablaModel *model,
                        const char *const *texts,
                        size_t texts_count,
                        const struct TablaEmbedOptions *options,
                        float *out,
                        size_t capacity,
                        size_t *count);

/**
 * Writes the embeddings of texts, `[texts, dimensions]`. A model that generates text must be
 * loaded with `TablaLoadOptions.embeddings`. The sequence does not change. `capacity` and `count`
 * are numbers of floats. If `out` is NULL, only `count` is written. NULL options are the defaults.
 *
 * `texts` points to `texts_count` C strings; `options` is NULL or points to a struct with
 * `struct_size` set; `out` is NULL or points to space for `capacity` floats; `count` points to a
 * `size_t`.
 */
TablaStatus tabla_session_embed(struct TablaSession *session,
                                const char *const *texts,
                                size_t texts_count,
                                const struct TablaEmbedOptions *options,
                                float *out,
                                size_t capacity,
                                size_t *count);

/**
 * Writes a relevance score for each document. A cross-encoder, an encoder with a classification head of
 * one label, gives the sigmoid of its logit, or the logit if its files set the identity as activation
 * function; `tabla_session_classify` with pairs returns logits of any cross-encoder, and truncates
 * documents. Generative rerankers, which answer "yes" or "no", give a score from 0 to 1. `instruction`
 * describes the relevance criterion to them; NULL: the default. Other models are
 * `TABLA_ERROR_UNSUPPORTED`. The sequence of the session does not change. If `out` is NULL, only
 * `count` is written.
 *
 * `query` is a C string, `instruction` NULL or one; `documents` points to `documents_count` C
 * strings; `out` is NULL or points to space for `capacity` floats; `count` points to a `size_t`.
 */
TablaStatus tabla_session_rerank(struct TablaSession *session,
                                 const char *query,
                                 const char *instruction,
                                 const char *const *documents,
                                 size_t documents_count,
                                 float *out,
                                 size_t capacity,
                                 size_t *count);

/** Options of classification. Zeros are the defaults. */
typedef struct TablaClassifyOptions {
    /** `sizeof(TablaClassifyOptions)`. */
    uint32_t struct_size;
    /**
     * Not 0: the scores are logits; otherwise the logits after the activation function of the
     * model. Default 0.
     */
    uint32_t logits;
    /**
     * Not 0: texts that are too long are truncated, of a pair only the second one; otherwise they
     * are an error, in C `TABLA_ERROR_TOO_LARGE`. Default 0.
     */
    uint32_t truncate;
} TablaClassifyOptions;

/**
 * Writes the scores of the labels for each text, `[texts, labels]`, for encoders with a classification
 * head. `TablaModelInfo.labels` is the number of labels, and `tabla_model_label` returns their names.
 * The activation function is that of the model's files; otherwise it is sigmoid for one label, and
 * softmax for several. If `pairs` is not NULL, it has a second text for each text, and the model reads
 * each pair together; a cross-encoder takes the query as text and the document as second text. The
 * sequence does not change. `capacity` and `count` are numbers of floats. If `out` is NULL, only
 * `count` is written. NULL options are the defaults.
 *
 * `texts` points to `texts_count` C strings, and so does `pairs` unless it is NULL; `options` is NULL or
 * points to a struct with `struct_size` set; `out` is NULL or points to space for `capacity` floats;
 * `count` points to a `size_t`.
 */
TablaStatus tabla_session_classify(struct TablaSession *session,
                                   const char *const *texts,
                                   const char *const *pairs,
                                   size_t texts_count,
                                   const struct TablaClassifyOptions *options,
                                   float *out,
                                   size_t capacity,
                                   size_t *count);

/**
 * Writes the name of a label of a model with a classification head, in UTF-8. No NUL is added. If
 * `text` is NULL, only `count` is written, the number of bytes.
 *
 * `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
 */
TablaStatus tabla_model_label(const struct TablaModel *model,
                              uint32_t label,
                              char *text,
                              size_t capacity,
                              size_t *count);

/* ===== Scores ===== */

/**
 * Writes the log-probability (natural logarithm) of each token from index `from` on, given all
 * tokens before it: `tokens_count - from` values. The first token has no context, so `from` is at
 * least 1. The sequence of the session does not change. If `out` is NULL, only `count` is written.
 *
 * `tokens` points to `tokens_count` ids; `out` is NULL or points to space for `capacity` floats;
 * `count` points to a `size_t`.
 */
TablaStatus tabla_session_score(struct TablaSession *session,
                                const uint32_t *tokens,
                                size_t tokens_count,
                                size_t from,
                                float *out,
                                size_t capacity,
                                size_t *count);

/* ===== Hooks: captured and changed values of the forward pass ===== */

/** Captures every position. */
#define TABLA_POSITIONS_ALL (0)

/** Captures the last token of the sequence. */
#define TABLA_POSITIONS_LAST (1)

/** Captures the positions of a list. */
#define TABLA_POSITIONS_LIST (2)

/** Sets the columns to the vector, or to a vector per position. */
#define TABLA_EDIT_SET (0)

/** Adds `factor` times the vector to the columns. */
#define TABLA_EDIT_ADD (1)

/** Multiplies the columns by `factor`; 0 removes the value. */
#define TABLA_EDIT_SCALE (2)

/** Subtracts `factor` times the projection of the columns on the vector; 1 removes the direction. */
#define TABLA_EDIT_PROJECT_OUT (3)

/** A change of the value at some points. */
typedef struct TablaEdit {
    /** Pattern of the points, in which `*` stands for any text without a dot: `blk.3`, `blk.*.attn`. */
    const char *point;
    /**
     * Vector with a number for each column of the edit; NULL with `TABLA_EDIT_SCALE`. With
     * `TABLA_EDIT_SET` also the vectors of all positions of the edit, one after another.
     */
    const float *vector;
    /** Number of numbers in `vector`. */
    size_t vector_count;
    /** One of `TABLA_EDIT_*`. */
    int32_t action;
    /** Factor of the action; unused with `TABLA_EDIT_SET`. */
    float factor;
    /** First column that changes. */
    uint32_t first_column;
    /** Number of columns that change, such as those of an attention head; 0: all. */
    uint32_t column_count;
    /** First position that changes. */
    uint32_t first_position;
    /** Number of positions that change; 0: all from the first. */
    uint32_t position_count;
} TablaEdit;

/**
 * Reads a LoRA adapter for a model: a folder of `peft` with `adapter_config.json` and
 * `adapter_model.safetensors`, or a GGUF file of llama.cpp. Returns NULL on failure; `tabla_last_error`
 * has the reason. `TablaHookOptions.adapters` applies it.
 *
 * `path` is a C string.
 */
struct TablaAdapter *tabla_adapter_load(const struct TablaModel *model,
                                        const char *path);

/** Frees an adapter. Hooks that use it continue. */
TablaStatus tabla_adapter_free(struct TablaAdapter *adapter);

/**
 * Reads a control vector: a GGUF file of llama.cpp, or an .npy file `[layers, dim]`. Returns NULL on
 * failure; `tabla_last_error` has the reason. `TablaHookOptions.steers` applies it.
 *
 * `path` is a C string.
 */
struct TablaControlVector *tabla_control_vector_load(const char *path);

/**
 * Creates a control vector from `count` vectors of `dim` numbers, one after another, for the layers of
 * `layers`, counted from 0. Returns NULL on failure; `tabla_last_error` has the reason. `model_hint` is
 * the architecture of the model, or NULL.
 *
 * `layers` points to `count` numbers, `vectors` to `count` times `dim` floats; `model_hint` is NULL or a
 * C string.
 */
struct TablaControlVector *tabla_control_vector_new(const char *model_hint,
                                                    const uint32_t *layers,
                                                    size_t count,
                                                    const float *vectors,
                                                    size_t dim);

/**
 * Writes a control vector: an .npy file if the name ends in ".npy", otherwise a GGUF file of
 * llama.cpp, which cannot have a vector of layer 0. The file replaces an existing one when it is
 * complete.
 *
 * `path` is a C string.
 */
TablaStatus tabla_control_vector_save(const struct TablaControlVector *vector, const char *path);

/** Frees a control vector. Hooks that use it continue. */
TablaStatus tabla_control_vector_free(struct TablaControlVector *vector);

/** A control vector of hooks: `scale` times the vector of a layer is added to the output of the layer. */
typedef struct TablaSteer {
    /** Control vector. */
    const struct TablaControlVector *vector;
    /** Factor. */
    float scale;
    /** First layer to which it is added, counted from 0. */
    uint32_t first_layer;
    /** Number of layers to which it is added; 0: all from the first. */
    uint32_t layer_count;
} TablaSteer;

/** Options of `tabla_hooks_new`. Set them with `tabla_hook_options_init` first. */
typedef struct TablaHookOptions {
    /** Size of this struct in bytes. */
    uint32_t struct_size;
    /** Positions whose values are captured: one of `TABLA_POSITIONS_*`. Default: all. */
    int32_t positions;
    /**
     * Patterns of the points whose values are captured, in which `*` stands for any text without a dot.
     * A point has the name of the tensor that computes it: `blk.*.attn_q`; `blk.3` is the residual
     * stream after layer 3, `token_embd` that before the first layer.
     */
    const char *const *capture;
    /** Number of patterns. */
    size_t capture_count;
    /** Positions of `TABLA_POSITIONS_LIST`, in ascending order. */
    const uint32_t *position_list;
    /** Number of positions of the list. */
    size_t position_list_count;
    /** Changes, applied in this order at each point, before its value is captured. */
    const struct TablaEdit *edits;
    /** Number of changes. */
    size_t edit_count;
    /**
     * LoRA adapters, at most one per `tabla_adapter_load`. A session uses each with scale 1 until
     * `tabla_session_set_adapter_scales`.
     */
    const struct TablaAdapter *const *adapters;
    /** Number of adapters. */
    size_t adapter_count;
    /** Control vectors, added after `edits`. */
    const struct TablaSteer *steers;
    /** Number of control vectors. */
    size_t steer_count;
    /** Number of positions that rows of attention weights have; 0: the context of the model. */
    uint32_t attention_positions;
    /** Must be 0. */
    uint32_t reserved;
} TablaHookOptions;

/**
 * Sets options to the defaults. `size` is `sizeof(TablaHookOptions)`.
 *
 * `options` points to `size` bytes.
 */
TablaStatus tabla_hook_options_init(struct TablaHookOptions *options, size_t size);

/** A point whose values are captured: columns of a row. */
typedef struct TablaCapturedPoint {
    /** Size of this struct in bytes. Set it before the call. */
    uint32_t struct_size;
    /** First column. */
    uint32_t offset;
    /** Number of columns. */
    uint32_t cols;
    /** Name of the point. Valid until the hooks are freed. */
    const char *name;
} TablaCapturedPoint;

/**
 * Compiles and links tables with hooks for a model. Returns NULL on failure; `tabla_last_error` has the
 * reason. Any number of sessions can use them: `tabla_session_set_hooks`. Other sessions are not
 * affected. A pattern that matches no point, and an edit that does not fit a point, is
 * `TABLA_ERROR_ARGUMENT`.
 *
 * `options` points to a struct with `struct_size` set, whose pointers are valid for their counts.
 */
struct TablaHooks *tabla_hooks_new(const struct TablaModel *model,
                                   const struct TablaHookOptions *options);

/**
 * Returns the number of captured points in `count` and, unless `point` is NULL, the point `index` in
 * the order of the forward pass.
 *
 * `point` is NULL or points to a struct with `struct_size` set; `count` points to a `size_t`.
 */
TablaStatus tabla_hooks_point(const struct TablaHooks *hooks,
                              size_t index,
                              struct TablaCapturedPoint *point,
                              size_t *count);

/**
 * Sets the hooks of a session; NULL removes them. Tokens of the session are computed again when they
 * are needed.
 */
TablaStatus tabla_session_set_hooks(struct TablaSession *session,
                                    const struct TablaHooks *hooks);

/**
 * Sets the scales of the adapters of a session's hooks, in the order of `TablaHookOptions.adapters`; 0
 * disables an adapter. Tokens of the session are computed again when they are needed. Sessions with the
 * same hooks and other scales are decoded together.
 *
 * `scales` points to `count` floats.
 */
TablaStatus tabla_session_set_adapter_scales(struct TablaSession *session,
                                             const float *scales,
                                             size_t count);

/**
 * Computes the tokens of a session and returns the values that its hooks captured: a row for each
 * captured position, with the columns of every point. `rows` receives the number of rows and `width`
 * that of columns. `positions` receives the position of each row and `values` all rows; both may be
 * NULL, and their capacities are numbers of elements.
 *
 * `positions` and `values` are NULL or point to buffers of their capacities; `rows` and `width` point
 * to a `size_t` each.
 */
TablaStatus tabla_session_captured(struct TablaSession *session,
                                   uint32_t *positions,
                                   size_t position_capacity,
                                   float *values,
                                   size_t value_capacity,
                                   size_t *rows,
                                   size_t *width);

/**
 * Replaces the tokens of a session, and computes them with its hooks. `tabla_session_captured` returns
 * the values. Unlike a prefill, it also works for encoders.
 *
 * `tokens` points to `count` ids.
 */
TablaStatus tabla_session_capture(struct TablaSession *session,
                                  const uint32_t *tokens,
                                  size_t count);

/**
 * Computes the logits that the model's final norm and output projection give for `rows` rows of the
 * residual stream, `TablaModelInfo.dim` numbers each (logit lens). `out` receives `rows` rows of
 * `TablaModelInfo.vocab` logits, and `count` their number; a NULL `out` only returns the number.
 *
 * `residual` points to the rows; `out` is NULL or points to `capacity` floats; `count` points to a
 * `size_t`.
 */
TablaStatus tabla_hooks_lens(const struct TablaModel *model,
                             const struct TablaHooks *hooks,
                             const float *residual,
                             size_t rows,
                             float *out,
                             size_t capacity,
                             size_t *count);

/** Frees hooks. Sessions that use them continue. */
TablaStatus tabla_hooks_free(struct TablaHooks *hooks);

/* ===== Transcription of speech ===== */

/** `TablaTranscribeOptions.task`: text in the spoken language. */
#define TABLA_TASK_TRANSCRIBE (0)

/** `TablaTranscribeOptions.task`: text in English. Only multilingual models translate. */
#define TABLA_TASK_TRANSLATE (1)

/**
 * Options of transcriptions. The defaults are those of OpenAI's program. Zeros are not the
 * defaults: initialize the struct with `tabla_transcribe_options_init`, which also sets
 * `struct_size` and sets pointers to NULL.
 */
typedef struct TablaTranscribeOptions {
    /** `sizeof(TablaTranscribeOptions)`. */
    uint32_t struct_size;
    /** Language of the text: `TABLA_TASK_TRANSCRIBE` (default) or `_TRANSLATE`. */
    int32_t task;
    /** Sample rate of samples that the program passes, in Hz. Range 1000 to 768000, default 16000. */
    uint32_t sample_rate;
    /**
     * Number of channels of samples that the program passes, interleaved. Range 1 to 32, default
     * 1.
     */
    uint32_t channels;
    /** Number of beams at temperature 0; 1: greedy. Range 1 to 8, default 5. */
    uint32_t beam_size;
    /**
     * Number of samples at a temperature above 0, of which the most likely is kept. Range 1 to 8,
     * default 5.
     */
    uint32_t best_of;
    /**
     * Not 0: segments have timestamps; otherwise each window of 30 seconds is one segment. Default
     * 1.
     */
    uint32_t timestamps;
    /**
     * Not 0: segments have words with times, which costs a pass of the decoder per window. Default
     * 0.
     */
    uint32_t word_timestamps;
    /** Not 0: the text of earlier windows is part of the prompt. Default 1. */
    uint32_t condition_on_previous_text;
    /** Must be 0. Default 0. */
    uint32_t reserved;
    /** Seed of samples. Default 0. */
    uint64_t seed;
    /** First temperature. Range 0 to 1, default 0. */
    double temperature;
    /** Increment of the temperature after each failed attempt; 0: one attempt. Default 0.2. */
    double temperature_increment;
    /** Beam search ends when `beam_size` times this number of texts are finished. Default 1. */
    double patience;
    /**
     * Exponent of the length penalty, 0 to 1; less than 0: sums are divided by lengths. Default
     * -1.
     */
    double length_penalty;
    /** An attempt with a higher compression ratio has failed; NaN: off. Default 2.4. */
    double compression_ratio_threshold;
    /** An attempt with a lower average log-probability has failed; NaN: off. Default -1. */
    double logprob_threshold;
    /**
     * A window with a higher probability of no speech is silent, unless its average
     * log-probability is above `logprob_threshold`; NaN: off. Default 0.6.
     */
    double no_speech_threshold;
    /** Latest start of the first segment of a window in seconds. Default 1. */
    double max_initial_timestamp;
    /** Level in dBFS below which at least 2 seconds of audio are skipped; NaN: off. Default -60. */
    double silence_level;
    /**
     * Code or English name of the language. NULL: detected in the first 30 seconds. English models
     * ignore it.
     */
    const char *language;
    /** Text before the recording, such as names that occur in it. NULL: none. */
    const char *initial_prompt;
    /**
     * Silero model of voices, a ggml file of whisper.cpp of 1 MB that every transcription reads:
     * at least 2 seconds of audio without speech are skipped, and `silence_level` is ignored.
     * NULL: `silence_level` is used.
     */
    const char *vad_model;
} TablaTranscribeOptions;

/**
 * Sets options to the defaults. `size` is `sizeof(TablaTranscribeOptions)`.
 *
 * `options` points to `size` bytes.
 */
TablaStatus tabla_transcribe_options_init(struct TablaTranscribeOptions *options, size_t size);

/** A word of a segment. */
typedef struct TablaWord {
    /** Text, NUL-terminated, with the space before it and with its punctuation. */
    const char *text;
    /** Length of the text in bytes. */
    size_t text_bytes;
    /** Start in seconds. */
    double start;
    /** End in seconds. */
    double end;
    /** Mean probability of its tokens. */
    double probability;
} TablaWord;

/** A segment of a transcript. Pointers are not NULL, except `words` if there are no words. */
typedef struct TablaSegment {
    /** `sizeof(TablaSegment)`. Set it before `tabla_transcription_next`. */
    uint32_t struct_size;
    /** Number of the segment, from 0. */
    uint32_t id;
    /** Start in seconds. */
    double start;
    /** End in seconds. */
    double end;
    /** Text, NUL-terminated. It starts with a space in most languages. */
    const char *text;
    /** Length of the text in bytes. */
    size_t text_bytes;
    /** Token ids, timestamps included. */
    const uint32_t *tokens;
    /** Number of tokens. */
    size_t tokens_count;
    /** Words, if `word_timestamps` requests them. */
    const struct TablaWord *words;
    /** Number of words. */
    size_t words_count;
    /** Temperature of its window. */
    double temperature;
    /** Average log-probability of the tokens of its window. */
    double avg_logprob;
    /** Compression ratio of the text of its window. */
    double compression_ratio;
    /** Probability that its window has no speech. */
    double no_speech_prob;
    /** First frame of its window, in units of 10 ms. */
    uint32_t seek;
    /** Always 0. */
    uint32_t reserved;
} TablaSegment;

/**
 * Receives every segment. The segment and its pointers are valid during the call. Return 0 to
 * continue; any other value ends the transcription.
 */
typedef int32_t (*TablaSegmentCallback)(const struct TablaSegment *segment, void *user_data);

/**
 * Transcribes samples from -1 to 1, at the rate and with the channels of the options, and passes
 * the segments to a callback. `count` is the number of floats. NULL options are the defaults.
 * The call uses the default session of the model: `tabla_session_cancel` cancels it.
 *
 * `samples` points to `count` floats; `options` is NULL or points to a struct with `struct_size`
 * set, whose pointers are NULL or C strings.
 */
TablaStatus tabla_transcribe(struct TablaModel *model,
                             const float *samples,
                             size_t count,
                             const struct TablaTranscribeOptions *options,
                             TablaSegmentCallback callback,
                             void *user_data);

/**
 * Transcribes an audio file and passes the segments to a callback, as `tabla_transcribe` does. The
 * format is detected from the content: WAV, MP3, FLAC, Ogg, MP4, M4A, Matroska or AAC.
 *
 * `path` is a C string; `options` is NULL or points to a struct with `struct_size` set, whose
 * pointers are NULL or C strings.
 */
TablaStatus tabla_transcribe_file(struct TablaModel *model,
                                  const char *path,
                                  const struct TablaTranscribeOptions *options,
                                  TablaSegmentCallback callback,
                                  void *user_data);

/**
 * Creates a transcription of samples that `tabla_transcription_push` passes. Returns NULL on
 * failure; `tabla_last_error` has the reason. NULL options are the defaults. A transcription keeps
 * its model alive.
 *
 * `options` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
 * strings.
 */
struct TablaTranscription *tabla_transcription_new(const struct TablaModel *model,
                                                   const struct TablaTranscribeOptions *options);

/**
 * Creates a transcription of an audio file, which `tabla_transcription_next` reads as far as
 * needed; its first call reads a file of more than 30 seconds to the end, for its maximum. Returns
 * NULL on failure; `tabla_last_error` has the reason. NULL options are the defaults.
 *
 * `path` is a C string; `options` as for `tabla_transcription_new`.
 */
struct TablaTranscription *tabla_transcription_open(const struct TablaModel *model,
                                                    const char *path,
                                                    const struct TablaTranscribeOptions *options);

/**
 * Creates a transcription of an audio file in memory, which is copied. Returns NULL on failure;
 * `tabla_last_error` has the reason. NULL options are the defaults.
 *
 * `data` points to `data_bytes` bytes; `options` as for `tabla_transcription_new`.
 */
struct TablaTranscription *tabla_transcription_open_memory(const struct TablaModel *model,
                                                           const void *data,
                                                           size_t data_bytes,
                                                           const struct TablaTranscribeOptions *options);

/**
 * Adds samples from -1 to 1, at the rate and with the channels of the options. `count` is the
 * number of floats, a multiple of the channels.
 *
 * `samples` points to `count` floats.
 */
TablaStatus tabla_transcription_push(struct TablaTranscription *transcription,
                                     const float *samples,
                                     size_t count);

/**
 * Ends the recording: `tabla_transcription_next` then returns the segments of the rest. A recording
 * of a file ends there.
 */
TablaStatus tabla_transcription_finish(struct TablaTranscription *transcription);

/**
 * Returns the next segment, for which the model may transcribe a window of 30 seconds. `found` is
 * 1 if there is one. It is 0 if more samples are needed, or, after `tabla_transcription_finish` or
 * at the end of a file, if there are no more segments; `segment` is not written then. The pointers
 * of the segment are valid until the next call on the transcription.
 *
 * `segment` points to a struct with `struct_size` set; `found` points to an `int32_t`.
 */
TablaStatus tabla_transcription_next(struct TablaTranscription *transcription,
                                     struct TablaSegment *segment,
                                     int32_t *found);

/** State of a transcription. Set `struct_size` before the call. */
typedef struct TablaTranscriptionInfo {
    /** `sizeof(TablaTranscriptionInfo)`. */
    uint32_t struct_size;
    /** Number of segments that were returned. */
    uint32_t segments;
    /** Duration of the audio so far in seconds. */
    double duration;
    /** Position up to which the audio is transcribed, in seconds. */
    double position;
    /**
     * Code of the language, such as `de`; `""` before it is detected. Valid as long as the library
     * is loaded.
     */
    const char *language;
    /** English name of the language, such as `german`; `""` before it is detected. */
    const char *language_name;
} TablaTranscriptionInfo;

/**
 * Writes the state of a transcription: duration, position and language.
 *
 * `info` points to a struct with `struct_size` set.
 */
TablaStatus tabla_transcription_info(const struct TablaTranscription *transcription,
                                     struct TablaTranscriptionInfo *info);

/**
 * Writes the segments that were returned as a text in a format: `text`, `srt`, `vtt`, `tsv`, `lrc`,
 * `json` or `verbose_json`. No NUL is added. If `text` is NULL, only `count` is written.
 *
 * `format` is a C string; `text` is NULL or points to space for `capacity` bytes; `count` points to
 * a `size_t`.
 */
TablaStatus tabla_transcription_write(const struct TablaTranscription *transcription,
                                      const char *format,
                                      char *text,
                                      size_t capacity,
                                      size_t *count);

/**
 * Cancels the current call on a transcription, from any thread, or else the next window. The call
 * returns `TABLA_ERROR_CANCELLED`, and the transcription can continue.
 */
TablaStatus tabla_transcription_cancel(const struct TablaTranscription *transcription);

/**
 * Frees a transcription and returns at once. A running call is cancelled, and stays valid until it
 * returns.
 */
TablaStatus tabla_transcription_free(struct TablaTranscription *transcription);

/* ===== Log messages and errors ===== */

/** Log level: no messages. For `tabla_log_set_callback`. */
#define TABLA_LOG_OFF (0)

/** Log level: errors that no return value reports. */
#define TABLA_LOG_ERROR (1)

/** Log level: warnings for users, such as a fallback or a guessed setting. */
#define TABLA_LOG_WARN (2)

/** Log level: progress of operations. */
#define TABLA_LOG_INFO (3)

/** Log level: details for developers. */
#define TABLA_LOG_DEBUG (4)

/**
 * Receives a log message: its level (`TABLA_LOG_ERROR`, ...) and one line of text, which is valid
 * during the call. It may be called from any thread, from several threads at once, and from inside
 * any call. It must not call the library: such a call fails with `TABLA_ERROR_REENTRANT`, except
 * `tabla_last_error` and similar functions that return neither a handle nor a status.
 */
typedef void (*TablaLogCallback)(int32_t level, const char *message, void *user_data);

/**
 * Sets the callback that receives log messages of all models up to a level. It replaces the
 * previous callback. NULL or `TABLA_LOG_OFF` disables logging, which is the default. Waits for
 * running calls of the previous callback, which is not called after this function returns.
 *
 * `callback` is NULL or a function that any thread may call with `user_data`.
 */
TablaStatus tabla_log_set_callback(int32_t level, TablaLogCallback callback, void *user_data);

/**
 * Returns the message of the last call that failed on this thread, never NULL; empty if no call
 * failed. A successful call does not change it. Valid until the next call that fails on this
 * thread, or the end of the thread.
 */
const char *tabla_last_error(void);

/**
 * Returns the code of the last call that failed on this thread, the one that `tabla_last_error`
 * describes; 0 if no call failed. It says why a function returned a NULL handle.
 */
TablaStatus tabla_last_error_code(void);

/**
 * Returns the name of a status, for example `TABLA_ERROR_BUSY`; `unknown` for a number that this
 * library does not define.
 */
const char *tabla_status_name(TablaStatus status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TABLA_H */
