/*
 * Tabla: load a language model file, compile it once into tables, replay a table per token.
 *
 * The contract. tests/capi holds the library to every sentence.
 *
 *  1. A status is 0 (TABLA_OK) or one of the TABLA_ERROR_ codes. Numbers are never changed or reused;
 *     take one that you do not know for an error. The text is in tabla_last_error(): it is of the
 *     calling thread, and valid until the next call on that thread.
 *  2. A failed call has no effect on your memory: results are written only on success. The one
 *     exception is the room for numbers, which holds anything after a failure. Functions that fill room
 *     write how many values there are to count; where they do not fit capacity, the call is
 *     TABLA_ERROR_TOO_LARGE, and with NULL for the room they only count.
 *  3. A handle is a number that the library looks up. NULL, a freed one, one of another kind, or one that
 *     was never given out is TABLA_ERROR_HANDLE, never undefined behaviour; freeing twice is the same
 *     error. Handles are freed in any order: what one needs of another stays.
 *  4. A model is shared by any number of sessions and threads. A session serves one call at a time, from
 *     any thread: a second one at the same time is TABLA_ERROR_BUSY, and one from inside one of its own
 *     callbacks TABLA_ERROR_REENTRANT, never a wait. So it is with the sequence that a model has of its
 *     own, on which tabla_generate() and the other short functions work. What only reads a model (its
 *     facts, its tokenizer, its chat templates) may be called at any time. So may cancelling and
 *     freeing, from any thread and from callbacks: the call that is inside ends early, and the memory
 *     goes when it has ended.
 *  5. Callbacks run on the thread of the call, during the call; that for the log runs on any thread. They
 *     must return: no exception and no longjmp may leave one.
 *  6. A struct whose first field is struct_size has it set to its own size before every call. A shorter
 *     one (of an older program) leaves the rest at its defaults, or unwritten; in a longer one (of a
 *     newer program) the rest must be zero, or becomes zero. Numbers that stand for a choice are checked.
 *  7. A panic inside the library is TABLA_ERROR_PANIC. Its session is TABLA_ERROR_POISONED from then on,
 *     or all of its model's where the model was at work, and can be freed.
 *  8. After a fork(), every call of the child is TABLA_ERROR_FORKED if the parent had loaded a model,
 *     and the parent goes on.
 *  9. What the library allocates goes with its handle; nothing is to be given to free(). Strings that
 *     functions return belong to the library. Memory that cannot be had for what a caller asks for is
 *     TABLA_ERROR_MEMORY.
 * 10. The library itself prints nothing (drivers of GPUs may), installs no signal handler and never ends the process; what it has to
 *     say beside its results goes to tabla_set_log_callback(). It exports only names that begin with
 *     tabla_.
 *
 * Call it from threads with a stack of 512 KiB or more. Strings are UTF-8, paths are bytes of the file system, and both end with a NUL unless a length
 * stands beside them. docs/ABI.md has the reasons and the register of codes.
 */


#ifndef TABLA_H
#define TABLA_H

/* Written by `cargo xtask bless` from crates/capi: change it there. */

#include <stddef.h>
#include <stdint.h>

/** Text comes without a token of its own: it was held back to the end of an answer. */
#define TABLA_NO_TOKEN UINT32_MAX

/** The answer goes on: `TablaPiece.finish`. */
#define TABLA_FINISH_NONE -1

/** Why an answer ended, a stop token, a stop string, the end of the grammar: `TablaStats.finish`. */
#define TABLA_FINISH_STOP 0

/** `max_tokens` were picked. */
#define TABLA_FINISH_LENGTH 1

/** The context is full. */
#define TABLA_FINISH_CONTEXT 2

/** The callback said so, or `tabla_session_end`. */
#define TABLA_FINISH_CALLBACK 3

/** Someone called `tabla_cancel` or `tabla_session_cancel`. */
#define TABLA_FINISH_CANCELLED 4

/** It failed. Of a batch, `TablaPiece.status` says why. */
#define TABLA_FINISH_FAILED 5

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

/** Version of this ABI: it changes when a program must be compiled again. */
#define TABLA_ABI_VERSION 1

/** Lines for people, one for each command: `tabla_table`. */
#define TABLA_TABLE_TEXT 0

/** A JSON array with an object for each command. */
#define TABLA_TABLE_JSON 1

/** No guesses are made at the next tokens: `TablaGenerateOptions.speculate`. */
#define TABLA_SPECULATE_OFF 0

/** What followed the last tokens when they stood in the sequence before (prompt lookup). */
#define TABLA_SPECULATE_LOOKUP 1

/** What the model of `TablaGenerateOptions.draft` picks. */
#define TABLA_SPECULATE_DRAFT 2

/** Any JSON object: `tabla_grammar_new`. */
#define TABLA_GRAMMAR_JSON_OBJECT 0

/** JSON that a JSON schema accepts. */
#define TABLA_GRAMMAR_JSON_SCHEMA 1

/** A text that a regular expression matches from its start to its end. */
#define TABLA_GRAMMAR_REGEX 2

/** A text of a grammar in Lark's syntax. */
#define TABLA_GRAMMAR_LARK 3

/** A text of a grammar in GBNF, the syntax of llama.cpp. */
#define TABLA_GRAMMAR_GBNF 4

/** The call did what it says. */
#define TABLA_OK 0

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

/** The KV cache is what the precision says: f16 or f32. `TablaLoadOptions.cache_type`. */
#define TABLA_CACHE_DEFAULT 0

/** It is f16. */
#define TABLA_CACHE_F16 1

/** It is f32. */
#define TABLA_CACHE_F32 2

/** It is `q8_0`, about half of f16. */
#define TABLA_CACHE_Q8_0 3

/** Nothing that was computed stays behind a session: `TablaLoadOptions.prefix_bytes`. */
#define TABLA_PREFIX_NONE UINT64_MAX

/** Nothing: `tabla_set_log_callback`. */
#define TABLA_LOG_OFF 0

/** What went wrong and is told in no other way. */
#define TABLA_LOG_ERROR 1

/** What a user should know: something was left out, or guessed. */
#define TABLA_LOG_WARN 2

/** What was done. */
#define TABLA_LOG_INFO 3

/** How, for developers. */
#define TABLA_LOG_DEBUG 4

/** Only the logits after the last token: `tabla_logits`. */
#define TABLA_LOGITS_LAST 0

/** The logits after every token of the sequence. */
#define TABLA_LOGITS_ALL 1

/** Adds the tokens that begin or end a text of this model: `tabla_encode`. */
#define TABLA_ENCODE_ADD_SPECIAL 1

/** Reads names of special tokens in the text as those tokens. Never for text from users. */
#define TABLA_ENCODE_PARSE_SPECIAL 2

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
    /** An internal invariant is violated: a bug in the library. */
    TABLA_ERROR_INTERNAL = 13,
    /** The library panicked inside the call; the handle is poisoned. */
    TABLA_ERROR_PANIC = 14,
    /** The handle is NULL, stale, of another type, or was freed. */
    TABLA_ERROR_HANDLE = 15,
    /** A resource is in use; the call may succeed later. */
    TABLA_ERROR_BUSY = 16,
    /** A callback called the object that invoked it. */
    TABLA_ERROR_REENTRANT = 17,
    /** A panic left the object unusable; free it and create a new one. */
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

/** Answers to many prompts. Opaque. */
typedef struct TablaBatch TablaBatch;

/** A compiled grammar. Opaque. */
typedef struct TablaGrammar TablaGrammar;

/**
 * A loaded model, with a session of its own. Opaque: its address is a number that only the library
 * understands.
 */
typedef struct TablaModel TablaModel;

/** What takes an answer apart while it comes. Opaque. */
typedef struct TablaParser TablaParser;

/** A sequence on a model, with what was said and what comes next. Opaque. */
typedef struct TablaSession TablaSession;

/** What a call returns: 0, or one of the `TablaError` codes. */
typedef int32_t TablaStatus;

/** A number that is added to the logit of a token. */
typedef struct TablaLogitBias {
    /** The token. */
    uint32_t token;
    /** The number; minus infinity bans the token. */
    float bias;
} TablaLogitBias;

/**
 * How tokens are picked, and how many. Zeros are not the defaults: `tabla_generate_options_init` fills
 * these in, `struct_size` too; pointers are NULL then. What is out of its range is
 * `TABLA_ERROR_ARGUMENT`, which names field and range. docs/sampling.md has the formulas and their order.
 */
typedef struct TablaGenerateOptions {
    /** `sizeof(TablaGenerateOptions)`. */
    uint32_t struct_size;
    /** Tokens at most; 0 goes on until a stop token or a full context. Default 0. */
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
    /** How many tokens back the penalties reach, 1024 at most. Default 64. */
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
    /** So many tokens come before a stop token may. Default 0. */
    uint32_t min_tokens;
    /**
     * How likely each token was is told, and so many of the likeliest in its place, 20 at most; 0: the
     * token's own alone; less than 0: nothing. Default -1.
     */
    int32_t log_probs;
    /** Taken off a token's logit as often as it stands among the last `repeat_last`. Default 0: off. */
    float frequency_penalty;
    /** Taken off a token's logit once if it stands there. Default 0: off. */
    float presence_penalty;
    /** Only tokens of the most typical surprise that hold so much of the probability. Default 1: off. */
    float typical_p;
    /** Only logits within so many standard deviations of the largest. Default 0: off. */
    float top_n_sigma;
    /** How far the temperature goes down and up with the entropy. Default 0: it stays. */
    float dynatemp_range;
    /** The power of the entropy that it goes by. Default 1. */
    float dynatemp_exponent;
    /** How likely all but the last of the top choices are taken away (XTC). Default 0: off. */
    float xtc_probability;
    /** The probability from which on a token is a top choice. Default 0.1. */
    float xtc_threshold;
    /** What a token loses that goes on with a repetition (DRY). Default 0: off. */
    float dry_multiplier;
    /** By how much the loss grows with each token. Default 1.75. */
    float dry_base;
    /** Tokens of a repetition that cost nothing yet. Default 2. */
    uint32_t dry_allowed_length;
    /** How many tokens back DRY looks. Default: all. */
    uint32_t dry_last;
    /** The surprise that tokens are held to, in bits (Mirostat 2). Default 0: off. */
    float mirostat_tau;
    /** How fast Mirostat learns. Default 0.1. */
    float mirostat_eta;
    /** `TABLA_SPECULATE_OFF`, `_LOOKUP` or `_DRAFT`. Default off. */
    int32_t speculate;
    /** Keep 0. */
    uint32_t reserved;
    /** A smaller model with the same vocabulary, for `TABLA_SPECULATE_DRAFT`; else NULL. */
    const struct TablaModel *draft;
    /** What the answer follows, or NULL. */
    const struct TablaGrammar *grammar;
    /**
     * Texts that end the answer, 64 at most of 1024 bytes each. No part of one comes out as text; its
     * tokens stay in the sequence.
     */
    const char *const *stop;
    /** How many there are. */
    size_t stop_count;
    /** Further tokens that end it, 32 at most with the model's own. */
    const uint32_t *stop_tokens;
    /** How many there are. */
    size_t stop_tokens_count;
    /** What is added to logits, of 512 tokens at most. */
    const struct TablaLogitBias *logit_bias;
    /** How many there are. */
    size_t logit_bias_count;
    /** What repetitions end at for DRY; NULL takes the usual: line break, `:`, `"` and `*`. */
    const char *const *dry_breakers;
    /** How many there are. */
    size_t dry_breakers_count;
} TablaGenerateOptions;

/**
 * Hears of every token: its id and the text that it completes, which is empty while a character is
 * incomplete or a stop string may have begun. Where some of that is left at the end, it comes once more,
 * with `TABLA_NO_TOKEN`. `text` ends with a NUL beyond `text_bytes` and is valid during the call. Return 0
 * to go on; anything else ends the generation.
 */
typedef int32_t (*TablaTokenCallback)(uint32_t token,
                                      const char *text,
                                      size_t text_bytes,
                                      void *user_data);

/** What a generation did. Set `struct_size` before the call. */
typedef struct TablaStats {
    /** `sizeof(TablaStats)`. */
    uint32_t struct_size;
    /** Tokens of the prompt. */
    uint32_t prompt_tokens;
    /** Milliseconds of the prompt. */
    double prompt_ms;
    /** Milliseconds of the tokens behind it. */
    double tokens_ms;
    /** Tokens that were picked. */
    uint32_t tokens;
    /** `TABLA_FINISH_STOP`, ... */
    int32_t finish;
    /** DraftStats that were made at tokens. */
    uint32_t guesses;
    /** Those of them that were right. */
    uint32_t guesses_right;
} TablaStats;

/** How likely the model held a token, before biases and samplers. */
typedef struct TablaLogProb {
    /** The token. */
    uint32_t token;
    /** The natural logarithm. */
    float log_prob;
} TablaLogProb;

/**
 * A piece of an answer: one token. Set `struct_size` before the call. What it points to is never NULL,
 * but for `likeliest` where there are none, and valid until the next call on the session or batch.
 */
typedef struct TablaPiece {
    /** `sizeof(TablaPiece)`. */
    uint32_t struct_size;
    /** The token; `TABLA_NO_TOKEN` where text was held back to the end, and behind it. */
    uint32_t token;
    /**
     * The text that it completes, which is empty while a character is incomplete or a stop string may
     * have begun; a NUL is behind it.
     */
    const char *text;
    /** Bytes of the text. */
    size_t text_bytes;
    /**
     * `TABLA_FINISH_NONE` while the answer goes on. Else it has ended, and there is no token here and no
     * text, but for the message of `TABLA_FINISH_FAILED`.
     */
    int32_t finish;
    /** How likely the token was, as a natural logarithm; NaN where `log_probs` did not ask for it. */
    float log_prob;
    /** The likeliest tokens in its place, the likeliest first. */
    const struct TablaLogProb *likeliest;
    /** How many there are. */
    size_t likeliest_count;
    /** Of a batch: whose piece it is. */
    size_t number;
    /** Of a batch: the code of the error with `TABLA_FINISH_FAILED`, else 0. */
    TablaStatus status;
} TablaPiece;

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
    /** The token that begins texts, or `TABLA_NO_TOKEN`. */
    uint32_t bos_token;
    /** The token that ends texts, or `TABLA_NO_TOKEN`. `tabla_stop_tokens` has all that end an answer. */
    uint32_t eos_token;
    /** Numbers of an embedding; 0 for a model that was loaded to yield none. */
    uint32_t embedding_dim;
    /** Tokens of a text that becomes an embedding, at most. */
    uint32_t embedding_length;
    /** Not 0: it yields embeddings alone. */
    uint32_t is_encoder;
    /** Sequences that go on together. */
    uint32_t sequences;
} TablaModelInfo;

/**
 * Called at the end of each of the 18 stages of loading, in the order of their numbers: number, name,
 * time that the stage took, and the fraction of the stages that have ended (0 to 1). Return 0
 * to go on; anything else stops the load, which is `TABLA_ERROR_CANCELLED` then.
 */
typedef int32_t (*TablaProgressCallback)(uint32_t stage,
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
    /** Threads on a CPU; 0 takes one for every physical core. */
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
    /**
     * Sequences that go on together, each of `max_context` positions; 0 is 1. There may be more
     * sessions than these: they wait for each other.
     */
    uint32_t sequences;
    /** `TABLA_CACHE_DEFAULT`, `_F16`, `_F32` or `_Q8_0`. */
    int32_t cache_type;
    /** Tokens of a prompt that go through the model at once; 0 takes what suits the device. */
    uint32_t chunk_tokens;
    /**
     * Not 0: a GPU's steps of one sequence go through the tables of several, by which guesses can
     * be checked: `TablaGenerateOptions.speculate`. A CPU can always.
     */
    uint32_t wide_steps;
    /**
     * Bytes for what was computed for sequences that have gone, and serves whoever comes with the same
     * beginning; 0 takes what the sequences leave, `TABLA_PREFIX_NONE` nothing.
     */
    uint64_t prefix_bytes;
    /** The GPU, by a part of its name or its number; NULL takes the best one. */
    const char *adapter;
    /** A folder of tunings for GPUs, or NULL. */
    const char *tuning_path;
    /** A folder that keeps compiled kernels of GPUs for the next load, or NULL. */
    const char *kernel_path;
    /**
     * Names of samplers in their order, `;` between them, as of docs/sampling.md: what is not among them
     * stays off. NULL takes the usual ones.
     */
    const char *samplers;
    /**
     * How tensors of type `I2_S` are laid out, which no file says: `128`, `64` or `1x4`; NULL takes what
     * is usual.
     */
    const char *i2s_layout;
    /** Not 0: a GPU is asked for no more than every device of WebGPU has. */
    uint32_t gpu_baseline;
    /** Keep 0. */
    uint32_t reserved;
} TablaLoadOptions;

/**
 * Hears of what the library says: `TABLA_LOG_ERROR`, ... and a line, which is valid during the call.
 * It may be called from any thread, from several at once, and from inside any call: what it calls of the
 * library is `TABLA_ERROR_REENTRANT`, but for `tabla_last_error` and the like.
 */
typedef void (*TablaLogCallback)(int32_t level, const char *message, void *user_data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * `tabla_generate` of a session.
 *
 * As of `tabla_generate`.
 */
TablaStatus tabla_session_generate(struct TablaSession *session,
                                   const char *prompt,
                                   const struct TablaGenerateOptions *options,
                                   TablaTokenCallback callback,
                                   void *user_data,
                                   struct TablaStats *stats);

/**
 * Begins an answer that `tabla_session_next` takes piece by piece: encodes a prompt behind the
 * sequence, if there is one, as `tabla_generate` does, runs it, and has the model go on while pieces are
 * taken. An answer whose pieces are not taken holds nobody up. NULL options are the defaults. Until its
 * end the session takes no other call than `tabla_session_next`, `_end`, `_stats`, `_cancel` and `_free`.
 *
 * `prompt` is NULL or a C string; `options` is NULL or points to a struct that begins with its size.
 */
TablaStatus tabla_session_begin(struct TablaSession *session,
                                const char *prompt,
                                const struct TablaGenerateOptions *options);

/**
 * Waits for the next piece of the answer. Behind the last one `finish` says why the answer ended, and
 * the session is free for other calls; one more call is `TABLA_ERROR_STATE`. An error ends the answer,
 * too.
 *
 * `piece` points to a struct that begins with its size.
 */
TablaStatus tabla_session_next(struct TablaSession *session,
                               struct TablaPiece *piece);

/**
 * Ends the answer here: the tokens that were taken stay in the sequence, and none behind them. There
 * need not be one.
 */
TablaStatus tabla_session_end(struct TablaSession *session);

/**
 * Writes, between two other calls, what the answer that is under way has done so far, or what the last one
 * did that was begun with `tabla_session_begin`.
 *
 * `stats` points to a struct that begins with its size.
 */
TablaStatus tabla_session_stats(const struct TablaSession *session,
                                struct TablaStats *stats);

/**
 * An empty batch, or NULL with the reason in `tabla_last_error`. Its answers go on together, as many as
 * the model has sequences; the others wait for their turn. One thread takes all of them with
 * `tabla_batch_next`. A batch keeps its model.
 */
struct TablaBatch *tabla_batch_new(const struct TablaModel *model);

/**
 * Adds a prompt, as ids, and begins to answer it; it waits for nothing. `number` counts from 0. NULL
 * options are the defaults. Where 512 answers are under way it is `TABLA_ERROR_BUSY`: take some to their
 * end first.
 *
 * `tokens` points to `count` ids; `options` is NULL or points to a struct that begins with its size;
 * `number` points to a size.
 */
TablaStatus tabla_batch_add(struct TablaBatch *batch,
                            const uint32_t *tokens,
                            size_t count,
                            const struct TablaGenerateOptions *options,
                            size_t *number);

/**
 * Waits for the next piece of any of the answers, which take turns: `TablaPiece.number` says of which.
 * Behind its last one, an answer has a piece whose `finish` says why it ended. One that failed has
 * `TABLA_FINISH_FAILED`, with the error's code in `status` and its message in `text`; the others go on.
 *
 * `piece` points to a struct that begins with its size.
 */
TablaStatus tabla_batch_next(struct TablaBatch *batch,
                             struct TablaPiece *piece);

/**
 * Writes how many answers are under way.
 *
 * `count` points to a size.
 */
TablaStatus tabla_batch_pending(const struct TablaBatch *batch, size_t *count);

/**
 * Writes what the answer did whose end came last; the time of its prompt is part of the others'.
 *
 * `stats` points to a struct that begins with its size.
 */
TablaStatus tabla_batch_stats(const struct TablaBatch *batch, struct TablaStats *stats);

/** Stops an answer, from any thread; one that has ended stays as it is. */
TablaStatus tabla_batch_cancel(const struct TablaBatch *batch, size_t number);

/** Frees a batch; its answers are cancelled. */
TablaStatus tabla_batch_free(struct TablaBatch *batch);

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
 * Answers a conversation: the model's own sequence becomes the conversation, as `tabla_encode_chat`
 * makes it, and the model goes on behind it. What the sequence has of it is not computed again; where the
 * call fails, the sequence may be a beginning of the conversation. What a model writes around reasoning and
 * calls of tools comes as it is: `tabla_parser_new` takes it apart. The rest is as in `tabla_generate`.
 *
 * `messages` is a C string; `chat` is NULL or points to a struct that begins with its size and whose
 * pointers are NULL or C strings; the rest as of `tabla_generate`.
 */
TablaStatus tabla_chat(struct TablaModel *model,
                       const char *messages,
                       const struct TablaChatOptions *chat,
                       const struct TablaGenerateOptions *options,
                       TablaTokenCallback callback,
                       void *user_data,
                       struct TablaStats *stats);

/**
 * `tabla_chat` of a session.
 *
 * As of `tabla_chat`.
 */
TablaStatus tabla_session_chat(struct TablaSession *session,
                               const char *messages,
                               const struct TablaChatOptions *chat,
                               const struct TablaGenerateOptions *options,
                               TablaTokenCallback callback,
                               void *user_data,
                               struct TablaStats *stats);

/**
 * Begins to answer a conversation as `tabla_session_chat` does; `tabla_session_next` takes the answer
 * piece by piece, as that of `tabla_session_begin`.
 *
 * As of `tabla_chat`.
 */
TablaStatus tabla_session_begin_chat(struct TablaSession *session,
                                     const char *messages,
                                     const struct TablaChatOptions *chat,
                                     const struct TablaGenerateOptions *options);

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
 * `tabla_embed` of a session, whose sequence stays as it is.
 *
 * As of `tabla_embed`.
 */
TablaStatus tabla_session_embed(struct TablaSession *session,
                                const char *const *texts,
                                size_t texts_count,
                                const struct TablaEmbedOptions *options,
                                float *out,
                                size_t capacity,
                                size_t *count);

/** The version of the library, for example `0.1.0`. */
const char *tabla_version(void);

/** The version of this ABI: compare it with `TABLA_ABI_VERSION` of the header. */
uint32_t tabla_abi_version(void);

/**
 * Writes facts about a model: as many bytes as `struct_size` says. What this library does not
 * know yet becomes 0.
 *
 * `info` points to a struct that begins with its size.
 */
TablaStatus tabla_model_info(const struct TablaModel *model, struct TablaModelInfo *info);

/**
 * Writes what tells a model's files from those of other models, 32 bytes: a digest of the architecture
 * and its numbers, and of the tensors, of large ones of samples. Device and options are no part of it.
 *
 * `digest` points to room for 32 bytes.
 */
TablaStatus tabla_digest(const struct TablaModel *model,
                         uint8_t *digest);

/**
 * Writes a table of a model, as the device replays it. `name` is `step`, `batch` or `embed`, NULL for
 * the first one; of several of one name it is the narrowest through which `tokens` tokens go at once.
 * `format` is `TABLA_TABLE_TEXT` or `_JSON`. No NUL is added. With `text` NULL only `count` is written.
 *
 * `name` is NULL or a C string; `text` is NULL or points to room for `capacity` bytes; `count` points to
 * a size.
 */
TablaStatus tabla_table(const struct TablaModel *model,
                        const char *name,
                        uint32_t tokens,
                        int32_t format,
                        char *text,
                        size_t capacity,
                        size_t *count);

/**
 * Writes what tables can run on here, as a JSON object: `cpu`, and `gpus` in the order of their numbers,
 * by which `TablaLoadOptions.adapter` takes them. No NUL is added. With `text` NULL only `count` is
 * written.
 *
 * `text` is NULL or points to room for `capacity` bytes; `count` points to a size.
 */
TablaStatus tabla_devices(char *text,
                          size_t capacity,
                          size_t *count);

/**
 * Fills options with the defaults. `size` is `sizeof(TablaGenerateOptions)`.
 *
 * `options` points to `size` bytes.
 */
TablaStatus tabla_generate_options_init(struct TablaGenerateOptions *options, size_t size);

/**
 * Compiles a grammar for a model's vocabulary, or returns NULL and leaves the reason in
 * `tabla_last_error`. `kind` is one of `TABLA_GRAMMAR_*`, `text` the grammar, NULL for any JSON object.
 * Any number of answers follow it at once: `TablaGenerateOptions.grammar`. Texts over 64 KiB, schemas over
 * 256 KiB, and what takes longer than some seconds are `TABLA_ERROR_TOO_LARGE`.
 *
 * `text` is NULL or a C string.
 */
struct TablaGrammar *tabla_grammar_new(const struct TablaModel *model,
                                       int32_t kind,
                                       const char *text);

/**
 * Compiles the grammar of answers that are a call of one of `TablaChatOptions.tools`, as the model's chat
 * template has calls written, or returns NULL and leaves the reason in `tabla_last_error`. `function` is
 * the name of the tool, NULL for any. It is `TABLA_ERROR_UNSUPPORTED` where no grammar describes how
 * calls are written.
 *
 * `chat` points to a struct that begins with its size and whose pointers are NULL or C strings;
 * `function` is NULL or a C string.
 */
struct TablaGrammar *tabla_grammar_new_call(const struct TablaModel *model,
                                            const struct TablaChatOptions *chat,
                                            const char *function);

/** Frees a grammar. Answers that follow it go on. */
TablaStatus tabla_grammar_free(struct TablaGrammar *grammar);

/**
 * The text of the last error of this thread, valid until its next call that returns a handle or a status.
 * Empty if there was none; behind a call that did what it says it is that of an earlier one.
 */
const char *tabla_last_error(void);

/** The code of the last call of this thread that returns a handle or a status; 0 after success. */
TablaStatus tabla_last_error_code(void);

/** What a status is called: `TABLA_ERROR_BUSY`. One that this library does not know is `unknown`. */
const char *tabla_status_name(TablaStatus status);

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
 * `path` is NULL or a C string; `options` is NULL or points to a struct that begins with its size, and
 * whose pointers are NULL or C strings.
 */
struct TablaModel *tabla_load_model_with(const char *path,
                                         const struct TablaLoadOptions *options);

/**
 * Has a function hear of everything up to a level, of all models, in the place of the one before it.
 * NULL or `TABLA_LOG_OFF`: nobody does, as at first. When this returns, the one before it is not called
 * any more: it waits for calls that are under way.
 *
 * `callback` is NULL or a function that any thread may call with `user_data`.
 */
TablaStatus tabla_set_log_callback(int32_t level,
                                   TablaLogCallback callback,
                                   void *user_data);

/**
 * Frees a model, and returns at once. A call that is inside it is cancelled, and is safe until it
 * returns; memory goes with the last session or batch. NULL is an error.
 */
TablaStatus tabla_free_model(struct TablaModel *model);

/**
 * Stops what a model does with its own sequence, from any thread: the call or the answer that is under
 * way, and nothing that begins later. While tokens are picked the call returns `TABLA_OK`, with
 * `TABLA_FINISH_CANCELLED`, and its callback hears of no other token; within a prompt it is
 * `TABLA_ERROR_CANCELLED` once the chunk is done, and what was done stays in the sequence.
 */
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
 * Picks the next token, appends it to the sequence and writes it to `token`. Of the options it takes
 * those of sampling.
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
 * size; `stats` is NULL or points to one that does.
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
 * What takes an answer apart, or NULL with the reason in `tabla_last_error`. `chat` are the options by
 * which the conversation was rendered: its template and its tools say how reasoning and calls are written.
 * `prompt` is the text of the conversation, in which reasoning may have begun (`tabla_apply_chat_template`),
 * or NULL.
 *
 * `chat` is NULL or points to a struct that begins with its size and whose pointers are NULL or C strings;
 * `prompt` is NULL or a C string.
 */
struct TablaParser *tabla_parser_new(const struct TablaModel *model,
                                     const struct TablaChatOptions *chat,
                                     const char *prompt);

/**
 * Takes the next piece of an answer, its token (`TABLA_NO_TOKEN` where there is none) and its text, and
 * has `parts` point to what that completes: a JSON array, often an empty one, of `{"content": "..."}`,
 * `{"reasoning_content": "..."}` and `{"tool_call": {"index", "id", "name", "arguments"}}`, where `id` is
 * null if the model gave none and `arguments` are JSON as text. Calls come whole. What `parts` points to
 * is valid until the next call on the parser.
 *
 * `text` points to `text_bytes` bytes; `parts` points to a pointer.
 */
TablaStatus tabla_parser_push(struct TablaParser *parser,
                              uint32_t token,
                              const char *text,
                              size_t text_bytes,
                              const char **parts);

/**
 * Ends the answer: has `parts` point to what was held back, as `tabla_parser_push` does. From then on
 * there is nothing to push.
 *
 * `parts` points to a pointer.
 */
TablaStatus tabla_parser_finish(struct TablaParser *parser,
                                const char **parts);

/** Frees a parser. */
TablaStatus tabla_parser_free(struct TablaParser *parser);

/**
 * Writes the natural logarithm of how likely each token from the `from`th on is, given all in front of
 * it: `tokens_count - from` numbers. The first token has nothing in front of it, so that `from` is 1 at
 * least. The session's own sequence stays as it is. With `out` NULL only `count` is written.
 *
 * `tokens` points to `tokens_count` ids; `out` is NULL or points to room for `capacity` floats; `count`
 * points to a size.
 */
TablaStatus tabla_session_score(struct TablaSession *session,
                                const uint32_t *tokens,
                                size_t tokens_count,
                                size_t from,
                                float *out,
                                size_t capacity,
                                size_t *count);

/**
 * Writes how well each document answers a query, from 0 to 1, for models that were trained to rank by
 * "yes" and "no". `instruction` says what answers it; NULL takes the usual one. The session's own
 * sequence stays as it is. With `out` NULL only `count` is written.
 *
 * `query` is a C string, `instruction` NULL or one; `documents` points to `documents_count` C strings;
 * `out` is NULL or points to room for `capacity` floats; `count` points to a size.
 */
TablaStatus tabla_session_rerank(struct TablaSession *session,
                                 const char *query,
                                 const char *instruction,
                                 const char *const *documents,
                                 size_t documents_count,
                                 float *out,
                                 size_t capacity,
                                 size_t *count);

/**
 * A session with an empty sequence, or NULL with the reason in `tabla_last_error`. Sessions of a model
 * go on together, as many as it has sequences; calls that compute wait where there are more. A model's own
 * sequence is one like them. A session keeps its model: free them in any order.
 */
struct TablaSession *tabla_session_new(const struct TablaModel *model);

/**
 * A session with the same sequence, or NULL with the reason in `tabla_last_error`. Nothing is
 * computed again for it.
 */
struct TablaSession *tabla_session_fork(struct TablaSession *session);

/**
 * Writes a session to a file, with what was computed for it. The file is there when it is whole.
 *
 * `path` is a C string.
 */
TablaStatus tabla_session_save(struct TablaSession *session, const char *path);

/**
 * A session that goes on as the one did that `tabla_session_save` wrote, or NULL with the reason in
 * `tabla_last_error`. The file is held to the model and checked whole before anything is taken from it.
 *
 * `path` is a C string.
 */
struct TablaSession *tabla_session_load(const struct TablaModel *model,
                                        const char *path);

/**
 * Frees a session, and returns at once. A call that is inside it is cancelled, and is safe until it
 * returns: keep what its callback needs until then.
 */
TablaStatus tabla_session_free(struct TablaSession *session);

/** Stops what a session does, from any thread, as `tabla_cancel` does. */
TablaStatus tabla_session_cancel(const struct TablaSession *session);

/** Forgets what stands behind the first `keep` tokens of the sequence; 0 forgets all. */
TablaStatus tabla_session_truncate(struct TablaSession *session, size_t keep);

/**
 * Writes the tokens of the sequence, given and picked. With `tokens` NULL only `count` is written.
 *
 * `tokens` is NULL or points to room for `capacity` ids; `count` points to a size.
 */
TablaStatus tabla_session_tokens(const struct TablaSession *session,
                                 uint32_t *tokens,
                                 size_t capacity,
                                 size_t *count);

/**
 * `tabla_prefill` of a session.
 *
 * `tokens` points to `count` ids.
 */
TablaStatus tabla_session_prefill(struct TablaSession *session,
                                  const uint32_t *tokens,
                                  size_t count);

/**
 * `tabla_step` of a session.
 *
 * As of `tabla_step`.
 */
TablaStatus tabla_session_step(struct TablaSession *session,
                               const struct TablaGenerateOptions *options,
                               uint32_t *token);

/**
 * `tabla_logits` of a session.
 *
 * As of `tabla_logits`.
 */
TablaStatus tabla_session_logits(struct TablaSession *session,
                                 int32_t rows,
                                 float *out,
                                 size_t capacity,
                                 size_t *count);

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

/**
 * Writes the bytes of one token as it stands in a text; of a special token, its name. No NUL is added.
 * With `text` NULL only `count` is written.
 *
 * `text` is NULL or points to room for `capacity` bytes; `count` points to a size.
 */
TablaStatus tabla_token_bytes(const struct TablaModel *model,
                              uint32_t token,
                              char *text,
                              size_t capacity,
                              size_t *count);

/**
 * Writes the tokens that end an answer of this model. With `tokens` NULL only `count` is written.
 *
 * `tokens` is NULL or points to room for `capacity` ids; `count` points to a size.
 */
TablaStatus tabla_stop_tokens(const struct TablaModel *model,
                              uint32_t *tokens,
                              size_t capacity,
                              size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TABLA_H */
