/*
 * Tabla: load a language model file, compile it once into tables, replay a table per token.
 *
 * The contract. tests/capi holds the library to every sentence.
 *
 *  1. A status is 0 (TABLA_OK) or one of the TABLA_ERROR_ codes. Numbers are never changed or reused;
 *     take one that you do not know for an error. The text is in tabla_last_error(): it is of the
 *     calling thread, and valid until the next call on that thread.
 *  2. A failed call has no effect on your memory: results are written only on success. The one
 *     exception is the room for logits and embeddings, which holds anything after a failure.
 *  3. A handle is a number that the library looks up. NULL, a freed one, or one that was never given
 *     out is TABLA_ERROR_HANDLE, never undefined behaviour; freeing twice is the same error.
 *  4. A model serves one call at a time, from any thread. A second call at the same time, or a call
 *     from inside one of the model's own callbacks, is TABLA_ERROR_STATE, never a wait.
 *     tabla_encode(), tabla_decode(), tabla_apply_chat_template(), tabla_encode_chat() and
 *     tabla_model_info() may be called at any time. So may tabla_cancel() and tabla_free_model(),
 *     from any thread and from callbacks: the call that is inside ends early, and the memory goes
 *     when it has ended.
 *  5. Callbacks run on the thread of the call, during the call. They must return: no exception and
 *     no longjmp may leave one.
 *  6. A struct of options begins with its own size in bytes. A shorter one (of an older program) leaves
 *     the rest at its defaults; in a longer one (of a newer program) the rest must be zero. Numbers
 *     that stand for a choice are checked.
 *  7. A panic inside the library is TABLA_ERROR_PANIC. Its model is unusable from then on
 *     (TABLA_ERROR_STATE) and can be freed.
 *  8. After a fork(), every call of the child returns TABLA_ERROR_STATE if the parent had loaded a
 *     model, and the parent goes on.
 *  9. What the library allocates is freed by tabla_free_model() alone; nothing is to be given to
 *     free(). Strings that functions return belong to the library.
 * 10. The library prints nothing, installs no signal handler and never ends the process. It exports
 *     only names that begin with tabla_.
 *
 * Strings are UTF-8, paths are bytes of the file system, and both end with a NUL unless a length
 * stands beside them. docs/ABI.md has the reasons and the register of codes.
 */


#ifndef TABLA_H
#define TABLA_H

/* Written by `cargo xtask bless` from src/capi: change it there. */

#include <stddef.h>
#include <stdint.h>

/** What the model's files say: `TablaEmbedOptions.pooling`. */
#define TABLA_POOLING_MODEL 0

/** The mean of a text's rows. */
#define TABLA_POOLING_MEAN 1

/** Its first row. */
#define TABLA_POOLING_CLS 2

/** Its last row. */
#define TABLA_POOLING_LAST 3

/** The largest number of each column. */
#define TABLA_POOLING_MAX 4

/** The call did what it says. */
#define TABLA_OK 0

/** Version of this ABI: it changes when a program must be compiled again. */
#define TABLA_ABI_VERSION 1

/** Only the logits after the last token: `tabla_logits`. */
#define TABLA_LOGITS_LAST 0

/** The logits after every token of the sequence. */
#define TABLA_LOGITS_ALL 1

/** Where a model runs: `TablaLoadOptions.device`. */
#define TABLA_DEVICE_AUTO 0

/** On the CPU. */
#define TABLA_DEVICE_CPU 1

/** On a GPU, be it a software one; an error where there is none. */
#define TABLA_DEVICE_GPU 2

/** Activations may go to int8 or bf16, the KV cache is f16: `TablaLoadOptions.precision`. */
#define TABLA_PRECISION_FAST 0

/** Every product in f32 on decoded weights, KV cache in f32. */
#define TABLA_PRECISION_EXACT 1

/** A CPU packs weights where they fit: `TablaLoadOptions.weights`. */
#define TABLA_WEIGHTS_AUTO 0

/** They stay in the file's pages, which every process shares; loading reads none of them. */
#define TABLA_WEIGHTS_MAPPED 1

/** They are rearranged in memory of their own while loading; tokens come faster. */
#define TABLA_WEIGHTS_PACKED 2

/** The head stays as the file has it: `TablaLoadOptions.head_type`. */
#define TABLA_HEAD_AS_STORED 0

/** The head is encoded anew while loading, so that a token reads fewer bytes. */
#define TABLA_HEAD_Q8_0 1

/** Fewer still. */
#define TABLA_HEAD_Q6_K 2

/** Why a generation ended: `TablaStats.finish`. */
#define TABLA_FINISH_STOP 0

/** `max_tokens` were picked. */
#define TABLA_FINISH_LENGTH 1

/** The context is full. */
#define TABLA_FINISH_CONTEXT 2

/** The callback said so. */
#define TABLA_FINISH_CALLBACK 3

/** Someone called `tabla_cancel`. */
#define TABLA_FINISH_CANCELLED 4

/** Adds the tokens that begin or end a text of this model: `tabla_encode`. */
#define TABLA_ENCODE_ADD_SPECIAL 1

/** Reads names of special tokens in the text as those tokens. Never for text from users. */
#define TABLA_ENCODE_PARSE_SPECIAL 2

/** Why something failed. The numbers are the C ABI: never change or reuse one. */
enum TablaError
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** An argument is out of its range, or a pointer is NULL. */
    TABLA_ERROR_ARGUMENT = 1,
    /** The operating system refused: a missing file, a directory, a read error. */
    TABLA_ERROR_IO = 2,
    /** The file is damaged or is not what it claims to be. */
    TABLA_ERROR_FORMAT = 3,
    /** The file is sound but uses something that this build does not know. */
    TABLA_ERROR_UNSUPPORTED = 4,
    /** A size is over a limit: of the model, of the device, of this build. */
    TABLA_ERROR_TOO_LARGE = 5,
    /** The tokenizer cannot be built, or cannot encode this text. */
    TABLA_ERROR_TOKENIZER = 6,
    /** A grammar or a schema is refused. */
    TABLA_ERROR_GRAMMAR = 7,
    /** Memory could not be had. */
    TABLA_ERROR_MEMORY = 8,
    /** The device refused work. */
    TABLA_ERROR_DEVICE = 9,
    /** The device is gone; the model must be loaded again. */
    TABLA_ERROR_DEVICE_LOST = 10,
    /** The caller asked to stop. */
    TABLA_ERROR_CANCELLED = 11,
    /** The call does not fit the state of the object: busy, re-entrant, poisoned, forked. */
    TABLA_ERROR_STATE = 12,
    /** A promise of the library itself does not hold. */
    TABLA_ERROR_INTERNAL = 13,
    /** The library panicked inside the call; the handle is poisoned. */
    TABLA_ERROR_PANIC = 14,
    /** The handle is NULL, stale, of another type, or was freed. */
    TABLA_ERROR_HANDLE = 15,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TablaError TablaError;
#else
typedef int32_t TablaError;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** A loaded model. Opaque: its address is a number that only the library understands. */
typedef struct TablaModel TablaModel;

/** What a call returns: 0, or one of the `TablaError` codes. */
typedef int32_t TablaStatus;

/** How a conversation is rendered. Zeros are the defaults. */
typedef struct TablaChatOptions {
    /** `sizeof(TablaChatOptions)`. */
    uint32_t struct_size;
    /** Not 0: the text does not end with what begins the assistant's answer. */
    uint32_t no_generation_prompt;
    /**
     * The name of a template or the source of one; NULL takes the model's own, or what the
     * special tokens of its vocabulary leave no doubt about.
     */
    const char *chat_template;
    /** A JSON array of tools, or NULL. */
    const char *tools;
    /** A JSON array of documents, or NULL. */
    const char *documents;
    /** A JSON object of further variables, like `{"enable_thinking": false}`, or NULL. */
    const char *variables;
} TablaChatOptions;

/** How texts become embeddings. Zeros are the defaults. */
typedef struct TablaEmbedOptions {
    /** `sizeof(TablaEmbedOptions)`. */
    uint32_t struct_size;
    /** `TABLA_POOLING_MODEL`, ... */
    int32_t pooling;
    /** Only the first so many numbers, for models that were trained for it (Matryoshka); 0: all. */
    uint32_t dimensions;
    /**
     * Over 0: embeddings get the length 1. Under 0: they stay as long as they are. 0: what the
     * model's files say, and length 1 where they say nothing.
     */
    int32_t normalize;
    /** Not 0: texts that are too long are cut. 0: they are `TABLA_ERROR_TOO_LARGE`. */
    uint32_t truncate;
    /** Keep 0. */
    uint32_t reserved;
    /**
     * The name of the model's prompt in front of every text, `""` for none; NULL takes its
     * default, if it has one.
     */
    const char *prompt;
} TablaEmbedOptions;

/**
 * Hears of each of the 18 stages of loading as it ends: its number, its name, how long it took,
 * and how much of the whole is done (0 to 1).
 */
typedef void (*TablaProgressCallback)(uint32_t stage,
                                      const char *name,
                                      double milliseconds,
                                      float done,
                                      void *user_data);

/** How a model is loaded. Zeros are the defaults. */
typedef struct TablaLoadOptions {
    /** `sizeof(TablaLoadOptions)`. */
    uint32_t struct_size;
    /** `TABLA_DEVICE_AUTO`, `_CPU` or `_GPU`. */
    int32_t device;
    /** `TABLA_PRECISION_FAST` or `_EXACT`. */
    int32_t precision;
    /** Threads on a CPU; 0 takes every core. */
    uint32_t threads;
    /** Positions of the KV cache; 0 takes what the model was trained for, 4096 at most. */
    uint32_t max_context;
    /** `TABLA_WEIGHTS_AUTO`, `_MAPPED` or `_PACKED`. */
    int32_t weights;
    /** A folder whose shaders stand in front of the embedded ones, or NULL. */
    const char *shader_path;
    /** Called at the end of every stage, or NULL. */
    TablaProgressCallback progress;
    /** Handed to `progress`. */
    void *user_data;
    /** `TABLA_HEAD_AS_STORED`, `_Q8_0` or `_Q6_K`. */
    int32_t head_type;
    /** Not 0: a model that generates text yields embeddings too. Encoders always do. */
    uint32_t embeddings;
} TablaLoadOptions;

/**
 * How the next token is picked: penalty, top-k, top-p, min-p, temperature, then a draw.
 * `tabla_generate_options_init` fills in the defaults.
 */
typedef struct TablaGenerateOptions {
    /** `sizeof(TablaGenerateOptions)`. */
    uint32_t struct_size;
    /** Tokens at most; 0 goes on until a stop token or a full context. */
    uint32_t max_tokens;
    /** Logits are divided by it; 0 takes the likeliest token. Default 0.8. */
    float temperature;
    /** Only the `top_k` likeliest tokens; 0: off. Default 40. */
    uint32_t top_k;
    /** Only the likeliest tokens that hold `top_p` of the probability; 1: off. Default 0.95. */
    float top_p;
    /** Only tokens at least `min_p` times as likely as the likeliest; 0: off. Default 0.05. */
    float min_p;
    /** Weakens tokens among the last `repeat_last`; 1: off. Default 1. */
    float repeat_penalty;
    /** How many tokens back the penalty reaches, 1024 at most. Default 64. */
    uint32_t repeat_last;
    /** The same seed draws the same tokens. Default 0. */
    uint64_t seed;
    /** Tokens of one submission to the device; 0 adapts. Default 0. */
    uint32_t chain;
    /** Not 0: stop tokens are ordinary. Default 0. */
    uint32_t ignore_stops;
    /**
     * Not 0: a full context does not end the generation; the older half of the sequence is
     * forgotten, and the rest computed anew. Default 0.
     */
    uint32_t context_shift;
    /** Tokens at the front that a context shift keeps, half of the context at most. Default 0. */
    uint32_t keep;
} TablaGenerateOptions;

/**
 * Hears of every token: its id and the text that it completes, which is empty while a character
 * is incomplete. `text` ends with a NUL beyond `text_bytes` and is valid during the call.
 * Return 0 to go on; anything else ends the generation.
 */
typedef int32_t (*TablaTokenCallback)(uint32_t token,
                                      const char *text,
                                      size_t text_bytes,
                                      void *user_data);

/** What a generation did. */
typedef struct TablaStats {
    /** Tokens of the prompt. */
    uint32_t prompt_tokens;
    /** Tokens that were picked. */
    uint32_t tokens;
    /** Milliseconds of the prompt. */
    double prompt_ms;
    /** Milliseconds of the tokens behind it. */
    double tokens_ms;
    /** `TABLA_FINISH_STOP`, ... */
    int32_t finish;
} TablaStats;

/** Facts about a model. Set `struct_size` before the call. */
typedef struct TablaModelInfo {
    /** `sizeof(TablaModelInfo)`. */
    uint32_t struct_size;
    /** Layers. */
    uint32_t layers;
    /** Width of the residual stream. */
    uint32_t dim;
    /** Query heads. */
    uint32_t heads;
    /** Key and value heads. */
    uint32_t kv_heads;
    /** Elements of a head. */
    uint32_t head_dim;
    /** Width of the feed-forward layer. */
    uint32_t ffn;
    /** Tokens of the vocabulary: the length of a row of logits. */
    uint32_t vocab;
    /** Positions that fit the KV cache. */
    uint32_t context;
    /** Positions that the model was trained for. */
    uint32_t context_trained;
    /** Elements of all tensors. */
    uint64_t parameters;
    /** Bytes of the file or files. */
    uint64_t file_bytes;
    /** Bytes of the KV cache. */
    uint64_t cache_bytes;
    /** Bytes of working memory. */
    uint64_t scratch_bytes;
    /** Architecture as the file names it, cut to fit, NUL at the end. */
    char architecture[32];
    /** The device, in words, cut to fit, NUL at the end. */
    char device[96];
} TablaModelInfo;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Renders a conversation with the model's chat template. `messages` is a JSON array of messages
 * in the form of OpenAI's chat completions; NULL options are the defaults. No NUL is added. With
 * `text` NULL only `count` is written. To feed the model take `tabla_encode_chat`: in the text
 * nobody can tell the template's special tokens from those that a message spells.
 *
 * `messages` is a C string, `options` NULL or a struct that begins with its size and whose
 * pointers are NULL or C strings, `text` NULL or room for `capacity` bytes, `count` points to a
 * size.
 */
TablaStatus tabla_apply_chat_template(const struct TablaModel *model,
                                      const char *messages,
                                      const struct TablaChatOptions *options,
                                      char *text,
                                      size_t capacity,
                                      size_t *count);

/**
 * Encodes a conversation with the model's chat template. Special tokens come from the template
 * alone: where a message spells one, it is text. The rest is as in `tabla_apply_chat_template`.
 *
 * As for `tabla_apply_chat_template`, with `tokens` NULL or room for `capacity` ids.
 */
TablaStatus tabla_encode_chat(const struct TablaModel *model,
                              const char *messages,
                              const struct TablaChatOptions *options,
                              uint32_t *tokens,
                              size_t capacity,
                              size_t *count);

/**
 * Writes the embeddings of texts, `[texts, dimensions]`. A model that generates text must have
 * been loaded with `TablaLoadOptions.embeddings`; its sequence stays as it is. `capacity` and
 * `count` are numbers of floats. With `out` NULL only `count` is written. NULL options are the
 * defaults.
 *
 * `texts` points to `texts_count` C strings; `options` is NULL or points to a struct that begins
 * with its size; `out` is NULL or points to room for `capacity` floats; `count` points to a size.
 */
TablaStatus tabla_embed(struct TablaModel *model,
                        const char *const *texts,
                        size_t texts_count,
                        const struct TablaEmbedOptions *options,
                        float *out,
                        size_t capacity,
                        size_t *count);

/**
 * The text of the last error of this thread, valid until its next call into the library.
 * Empty if there was none.
 */
const char *tabla_last_error(void);

/** The code of the last call of this thread that returns a handle or a status; 0 after success. */
TablaStatus tabla_last_error_code(void);

/**
 * Loads a model, or returns NULL and leaves the reason in `tabla_last_error`.
 *
 * `path` NULL takes the small built-in story model. `shader_path` NULL takes the embedded
 * shaders. `max_context` 0 or less takes what the model was trained for, 4096 at most.
 *
 * `path` and `shader_path` are NULL or C strings.
 */
struct TablaModel *tabla_load_model(const char *path, const char *shader_path, int32_t max_context);

/**
 * Loads a model with options, or returns NULL and leaves the reason in `tabla_last_error`.
 * NULL options are the defaults.
 *
 * `path` is NULL or a C string; `options` is NULL or points to a struct that begins with its size.
 */
struct TablaModel *tabla_load_model_with(const char *path, const struct TablaLoadOptions *options);

/** Frees a model. A call that is inside it is cancelled and ends first. NULL is an error. */
TablaStatus tabla_free_model(struct TablaModel *model);

/** Stops what a model does, from any thread. */
TablaStatus tabla_cancel(const struct TablaModel *model);

/** Forgets the sequence of a model. */
TablaStatus tabla_reset(struct TablaModel *model);

/**
 * Appends tokens to the sequence and runs them through the model.
 *
 * `tokens` points to `count` ids.
 */
TablaStatus tabla_prefill(struct TablaModel *model, const uint32_t *tokens, size_t count);

/**
 * Picks the next token, appends it to the sequence and writes it to `token`.
 *
 * `options` is NULL or points to a struct that begins with its size; `token` points to room for
 * an id.
 */
TablaStatus tabla_step(struct TablaModel *model,
                       const struct TablaGenerateOptions *options,
                       uint32_t *token);

/**
 * Encodes a prompt behind the sequence, runs it, and generates. NULL options are the defaults.
 * With an empty or NULL prompt it goes on from the sequence as it is. `stats` may be NULL.
 *
 * `prompt` is NULL or a C string; `options` is NULL or points to a struct that begins with its
 * size; `stats` is NULL or points to a `TablaStats`.
 */
TablaStatus tabla_generate(struct TablaModel *model,
                           const char *prompt,
                           const struct TablaGenerateOptions *options,
                           TablaTokenCallback callback,
                           void *user_data,
                           struct TablaStats *stats);

/**
 * Writes logits: `TABLA_LOGITS_LAST` `[vocab]`, `TABLA_LOGITS_ALL` `[tokens, vocab]`, for all
 * tokens of the sequence. `capacity` and `count` are numbers of floats. With `out` NULL only
 * `count` is written.
 *
 * `out` is NULL or points to room for `capacity` floats; `count` points to a size.
 */
TablaStatus tabla_logits(struct TablaModel *model,
                         int32_t rows,
                         float *out,
                         size_t capacity,
                         size_t *count);

/**
 * Writes facts about a model: as many bytes as `struct_size` says. What this library does not
 * know yet becomes 0.
 *
 * `info` points to a struct that begins with its size.
 */
TablaStatus tabla_model_info(const struct TablaModel *model, struct TablaModelInfo *info);

/**
 * Fills options with the defaults. `size` is `sizeof(TablaGenerateOptions)`.
 *
 * `options` points to `size` bytes.
 */
TablaStatus tabla_generate_options_init(struct TablaGenerateOptions *options, size_t size);

/** The version of the library, for example `0.1.0`. */
const char *tabla_version(void);

/** The version of this ABI: compare it with `TABLA_ABI_VERSION` of the header. */
uint32_t tabla_abi_version(void);

/**
 * Encodes UTF-8 text to token ids. `flags` are `TABLA_ENCODE_*`, added up. With `tokens` NULL
 * only `count` is written.
 *
 * `text` points to `text_bytes` bytes, `tokens` is NULL or to room for `capacity` ids, `count` to
 * a size.
 */
TablaStatus tabla_encode(const struct TablaModel *model,
                         const char *text,
                         size_t text_bytes,
                         uint32_t flags,
                         uint32_t *tokens,
                         size_t capacity,
                         size_t *count);

/**
 * Decodes token ids to bytes, which are UTF-8 where the tokens are whole characters. No NUL is
 * added. With `text` NULL only `count` is written.
 *
 * `tokens` points to `tokens_count` ids, `text` is NULL or to room for `capacity` bytes, `count`
 * to a size.
 */
TablaStatus tabla_decode(const struct TablaModel *model,
                         const uint32_t *tokens,
                         size_t tokens_count,
                         char *text,
                         size_t capacity,
                         size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TABLA_H */
