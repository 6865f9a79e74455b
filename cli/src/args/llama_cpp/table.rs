//! Options of llama.cpp and what Tabla does with each: the data of the rewriting and of docs/cli.md.

use super::convert::{self, Change};

/// Spellings of llama.cpp with one meaning.
#[derive(Debug)]
pub(crate) struct Row {
    /// The spellings, separated by spaces.
    pub(crate) names: &'static str,
    pub(super) values: Values,
    /// The first rule that applies to the command decides. Without one, the option is refused.
    pub(crate) rules: &'static [Rule],
}

/// Number of values that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Zero,
    One,
    /// A text, which can begin with a hyphen.
    Text,
    Two,
    /// A switch such as `on`, or none: older builds of llama.cpp have no value.
    Switch,
}

/// What happens with an option that the command does not have.
#[derive(Debug)]
pub(crate) enum Rule {
    /// Another name of this option, if the command has it.
    To(&'static str),
    /// Has the effect of these arguments, if the command has the first of them.
    Args(&'static [&'static str]),
    /// Depends on the value, also if the command has an option of this name. The text describes the function.
    Value(
        #[cfg_attr(not(test), expect(dead_code, reason = "docs/cli.md has it"))]
        &'static str,
        fn(&str) -> Result<Change, String>,
    ),
    /// One of two options, for keys and values, that must have equal values.
    CacheType,
    /// Accepted without an effect, for this reason.
    Ignore(&'static str),
    /// Refused, with this reason or way out.
    Refuse(&'static str),
    /// The rule applies to these commands only.
    In(&'static [&'static str], &'static Self),
}

use Rule::{Args, CacheType, Ignore, In, Refuse, To, Value};

/// Returns the row of a spelling.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    let has_name = |row: &&Row| row.names.split(' ').any(|other| other == name);
    ROWS.iter().find(has_name)
}

/// Returns the short spellings of an option that commands list in their help.
#[cfg(test)]
pub(crate) fn shorts(option: &str) -> impl Iterator<Item = &'static str> {
    let rows = ROWS.iter().filter(move |row| matches!(row.rules, [To(to), ..] if *to == option));
    let names = rows.flat_map(|row| row.names.split(' '));
    names.filter(|name| !name.starts_with("--"))
}

const fn flag(names: &'static str, rules: &'static [Rule]) -> Row {
    Row {
        names,
        values: Values::Zero,
        rules,
    }
}

const fn one(names: &'static str, rules: &'static [Rule]) -> Row {
    Row {
        names,
        values: Values::One,
        rules,
    }
}

const fn text(names: &'static str, rules: &'static [Rule]) -> Row {
    Row {
        names,
        values: Values::Text,
        rules,
    }
}

const fn two(names: &'static str, rules: &'static [Rule]) -> Row {
    Row {
        names,
        values: Values::Two,
        rules,
    }
}

const fn switch(names: &'static str, rules: &'static [Rule]) -> Row {
    Row {
        names,
        values: Values::Switch,
        rules,
    }
}

const SERVER: &[&str] = &["serve"];
const CHAT: &[&str] = &["chat"];

const BATCH: &str = "Tabla selects the batch size";
const PLACEMENT: &str = "the operating system places and schedules the threads";
const CACHE: &str = "prefixes are always cached, in the memory of the KV cache";
const DRAFT_LENGTH: &str = "the number of draft tokens adapts to how many are accepted";
const DRAFT_DEVICE: &str = "the draft model uses the device and the options of the model";
const DRAFTS: &str = "`tabla run` and `tabla chat` speculate";
const ONE_GPU: &str = "Tabla uses one device, and --adapter selects a GPU";
const MODEL_ONLY: &str = "Tabla uses the values of the model file";
const IMAGES: &str = "Tabla has no image input";
const TOOL: &str = "it belongs to a tool of llama.cpp that Tabla does not have";
const USE_CHAT: &str = "use `tabla chat`";
const LOG: &str = "the log has one level; --quiet prints errors only";
const PRESET: &str = "name the model with -hf ORG/REPO";
const NO_TOOLS: &str = "the server runs no tools; clients send theirs in requests";
const PREFIX: &str = "the chat template defines the text around messages";
const COLORS: &str = "terminals get colors unless NO_COLOR is set";

/// All rows. Options with the same name and meaning in all commands that have them need none.
pub(crate) const ROWS: &[Row] = &[
    // General.
    flag("--usage", &[Args(&["--help"])]),
    flag("-cl --cache-list", &[Refuse("use `tabla list`")]),
    flag("--completion-bash", &[Refuse("use `tabla completions bash`")]),
    flag("--list-devices", &[Refuse("use `tabla devices`")]),
    one("--server-base", &[Refuse("Tabla loads the model itself")]),
    flag("-v --verbose --log-verbose", &[To("--verbose"), Ignore(LOG)]),
    one("-lv --verbosity --log-verbosity", &[Ignore(LOG)]),
    flag("--log-disable", &[Args(&["--quiet"])]),
    one("--log-file", &[Refuse("redirect standard error: 2> FILE")]),
    flag("--log-jsonl", &[Args(&["--log-format", "json"]), Ignore(LOG)]),
    flag("--no-log-jsonl --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", &[Ignore(LOG)]),
    one("--log-prompts-dir", &[Refuse("Tabla writes no logs of prompts")]),
    switch("--log-colors -co --color", &[Ignore(COLORS)]),
    flag("--simple-io", &[Ignore("a pipe gets plain text")]),
    flag("--perf --no-perf --show-timings --no-show-timings", &[Ignore("timings go to standard error; --quiet omits them")]),
    flag("--verbose-prompt -ptc --print-token-count", &[Refuse("use `tabla tokenize`")]),
    // The model.
    one("-hf -hfr", &[To("--hf-repo")]),
    one("-hff --hf-file", &[Refuse("write -hf ORG/REPO:FILE")]),
    one("-hft --hf-token", &[Refuse("set the environment variable HF_TOKEN, which other users cannot read")]),
    one("-mu --model-url", &[Refuse("download the file and use -m FILE, or use -hf ORG/REPO")]),
    one("-dr --docker-repo", &[Refuse("use -hf ORG/REPO")]),
    one("--override-kv", &[Refuse(MODEL_ONLY)]),
    flag("--check-tensors", &[Refuse("use `tabla inspect --check`")]),
    one("-lm --load-mode", &[Value("none: `--load-mode read`; mmap, auto, read as in Tabla; mlock, dio: refused", convert::load_mode)]),
    one("-lzm --lazy-mode -mmp", &[Ignore("--weights selects packed or memory-mapped weights")]),
    flag("--mmap", &[Args(&["--load-mode", "mmap"])]),
    flag("--no-mmap", &[Args(&["--load-mode", "read"])]),
    flag("--mlock -dio --direct-io -ndio --no-direct-io", &[Ignore(
        "weights are packed into memory if they fit; --weights selects",
    )]),
    flag("--repack --no-host", &[Ignore("--weights selects packed or memory-mapped weights")]),
    flag("-nr --no-repack", &[Args(&["--weights", "mapped"])]),
    one("--lora-scaled", &[Value("`--lora FILE=SCALE`", convert::lora_scaled), Refuse("use --lora FILE=SCALE")]),
    one("--lora", &[Refuse("use --lora-merge FILE=SCALE")]),
    flag("--lora-init-without-apply", &[Refuse("adapters are merged at the start, with --lora-merge")]),
    one("--control-vector-scaled", &[Value("`--control-vector FILE=SCALE`", convert::control_vector_scaled)]),
    one("--control-vector", &[Refuse("use `tabla run` or `tabla chat`")]),
    two("--control-vector-layer-range", &[Refuse("use `tabla run` or `tabla chat`")]),
    one("-mm --mmproj -mmu --mmproj-url --image --audio --video --image-min-tokens --image-max-tokens", &[Refuse(IMAGES)]),
    one("--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir", &[Refuse(IMAGES)]),
    flag("--mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload", &[Ignore(IMAGES)]),
    // Devices and memory.
    one("-ngl --gpu-layers --n-gpu-layers", &[Value("0: `--device cpu`; otherwise ignored: all layers run on the device", convert::gpu_layers)]),
    one("-dev --device", &[Value("none: `--device cpu`; auto, cpu and gpu as in Tabla; names: use `--adapter`", convert::device)]),
    one("-sm --split-mode", &[Ignore(ONE_GPU)]),
    one("-ts --tensor-split -mg --main-gpu --rpc -rpc", &[Refuse(ONE_GPU)]),
    one("-ot --override-tensor", &[Refuse("use --cpu-moe or --n-cpu-moe N for the weights of experts")]),
    flag("-cmoe", &[To("--cpu-moe")]),
    one("-ncmoe", &[To("--n-cpu-moe")]),
    one("-ncffn --n-cpu-ffn", &[Refuse("use --cpu-moe, --n-cpu-moe N or --device cpu")]),
    switch("-fa --flash-attn", &[Ignore("attention never stores its scores in memory")]),
    one("-ctk --cache-type-k -ctv --cache-type-v", &[CacheType]),
    flag("-kvo --kv-offload -nkvo --no-kv-offload", &[Ignore("the KV cache is on the device of the model")]),
    flag("--op-offload --no-op-offload -nopo", &[Ignore("all operations run on the device of the model")]),
    flag("--swa-full", &[Ignore("Tabla selects the size of sliding-window caches")]),
    flag("-kvu --kv-unified -no-kvu --no-kv-unified", &[Ignore("sequences share the pages of one KV cache")]),
    one("--kv-unified-per-slot", &[Ignore("sequences share the pages of one KV cache")]),
    one("-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step -cram --cache-ram", &[Ignore(CACHE)]),
    flag("--cache-idle-slots --no-cache-idle-slots --cache-prompt --no-cache-prompt", &[Ignore(CACHE)]),
    one("--cache-reuse -sps --slot-prompt-similarity -dt --defrag-thold", &[Ignore(CACHE)]),
    switch("-fit --fit", &[Ignore("the context has at most 4096 tokens by default; -c sets it")]),
    one("-fitt --fit-target -fitc --fit-ctx", &[Ignore("the context has at most 4096 tokens by default; -c sets it")]),
    one("-b --batch-size -ub --ubatch-size", &[Ignore(BATCH)]),
    one("-tb --threads-batch", &[Ignore("prompts use the threads of -t")]),
    one("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa", &[Ignore(PLACEMENT)]),
    one("-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch", &[Ignore(PLACEMENT)]),
    one("--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale", &[Refuse(MODEL_ONLY)]),
    one("--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", &[Refuse(MODEL_ONLY)]),
    one("-gan --grp-attn-n -gaw --grp-attn-w", &[Refuse("Tabla has no self-extend")]),
    flag("--warmup --no-warmup", &[Ignore("`tabla bench` alone has a warm-up run")]),
    // Text generation.
    text("-p --prompt", &[In(&["tokenize", "embed"], &Value("the text", convert::positional))]),
    one("-f --file", &[
        In(&["perplexity"], &Value("the file", convert::positional)),
        In(CHAT, &Refuse("use -p \"$(cat FILE)\"")),
    ]),
    one("-bf --binary-file", &[Refuse("use -f FILE: text in UTF-8")]),
    one("--predict", &[To("--n-predict")]),
    flag("--no-escape", &[Ignore("backslashes are plain text unless -e is given")]),
    flag("-e --escape", &[Refuse("backslashes are plain text")]),
    flag("--display-prompt --no-display-prompt", &[Ignore("standard output has the generated text only")]),
    flag("-sp --special", &[Refuse("special tokens are not printed; `--json` of `tabla run` has their ids")]),
    text("-r --reverse-prompt", &[To("--stop"), Refuse("requests have `stop`")]),
    text("-sys --system-prompt", &[To("--system-prompt"), Refuse(USE_CHAT)]),
    one("-sysf --system-prompt-file", &[
        In(CHAT, &Refuse("use --system-prompt \"$(cat FILE)\"")),
        Refuse(USE_CHAT),
    ]),
    flag("-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", &[
        In(CHAT, &Ignore("`tabla chat` is a conversation")),
        Refuse(USE_CHAT),
    ]),
    flag("-no-cnv --no-conversation", &[
        In(CHAT, &Refuse("use `tabla run`")),
        Ignore("only `tabla chat` is a conversation"),
    ]),
    flag("-st --single-turn", &[Ignore("with -p, `tabla chat` and `tabla run` generate one response")]),
    flag("-mli --multiline-input", &[In(CHAT, &Ignore("\"\"\" and Alt-Enter write messages of several lines")), Refuse(USE_CHAT)]),
    flag("--in-prefix-bos", &[Refuse(PREFIX)]),
    one("--in-prefix --in-suffix", &[Refuse(PREFIX)]),
    one("--prompt-cache", &[Refuse("the program saves no sessions; the library does")]),
    flag("--prompt-cache-all --prompt-cache-ro", &[Refuse("the program saves no sessions; the library does")]),
    flag("--context-shift --no-context-shift", &[Ignore("without --context-shift, generation ends when the context is full")]),
    one("--keep", &[Refuse("the command has no context shift")]),
    flag("--ignore-eos", &[Refuse("use `tabla run`, or `ignore_eos` in requests")]),
    // Sampling.
    one("--temperature", &[To("--temp")]),
    one("--top-nsigma", &[To("--top-n-sigma")]),
    one("--sampler-seq --sampling-seq", &[Value("`--samplers` with the names of the letters", convert::sampler_letters)]),
    one("--adaptive-target --adaptive-decay", &[Refuse("Tabla has no adaptive-p sampler")]),
    flag("-bs --backend-sampling", &[Ignore("sampling runs on the device of the model")]),
    flag("--penalize-nl --no-penalize-nl", &[Ignore("penalties apply to all tokens")]),
    one("-jf", &[To("--json-schema-file")]),
    // Speculation.
    one("-md --spec-draft-model --model-draft", &[To("--model-draft"), Refuse(DRAFTS)]),
    one("-hfd -hfrd --hf-repo-draft --spec-draft-hf", &[Refuse("use --model-draft \"$(tabla pull ORG/REPO)\" with `tabla run` or `tabla chat`")]),
    one("--spec-type", &[Value("ngram-*: `--lookup`; draft-mtp: `--mtp`; none: nothing", convert::spec_type)]),
    one("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", &[Refuse("--lookup drafts from the text of the session")]),
    one("--draft --draft-n --draft-max --draft-min --draft-n-min --spec-draft-n-max --spec-draft-n-min", &[Ignore(DRAFT_LENGTH)]),
    one("--draft-p-split --spec-draft-p-split --draft-p-min --spec-draft-p-min", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", &[Ignore(DRAFT_LENGTH)]),
    one("--spec-synth-len --spec-synth-rates", &[Refuse("Tabla does not simulate drafts")]),
    flag("--spec-default", &[Refuse("use --lookup, --mtp or --model-draft with `tabla run` or `tabla chat`")]),
    flag("--mtp", &[Refuse(DRAFTS)]),
    flag("--dflash --eagle3", &[Refuse("--model-draft FILE of `tabla run` and `tabla chat` detects the kind of the drafter")]),
    flag("--spec-draft-backend-sampling --no-spec-draft-backend-sampling", &[Ignore(DRAFT_DEVICE)]),
    flag("-cmoed --cpu-moe-draft --spec-draft-cpu-moe", &[Ignore(DRAFT_DEVICE)]),
    one("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -devd --device-draft --spec-draft-device", &[Ignore(DRAFT_DEVICE)]),
    one("-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft --spec-draft-threads-batch", &[Ignore(DRAFT_DEVICE)]),
    one("-ctkd --cache-type-k-draft --spec-draft-type-k -ctvd --cache-type-v-draft --spec-draft-type-v", &[Ignore(DRAFT_DEVICE)]),
    one("-otd --override-tensor-draft --spec-draft-override-tensor -cd --ctx-size-draft", &[Ignore(DRAFT_DEVICE)]),
    one("-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe", &[Ignore(DRAFT_DEVICE)]),
    one("-Cd --cpu-mask-draft --spec-draft-cpu-mask -Crd --cpu-range-draft --spec-draft-cpu-range", &[Ignore(PLACEMENT)]),
    one("-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch -Crbd --cpu-range-batch-draft --spec-draft-cpu-range-batch", &[Ignore(PLACEMENT)]),
    one("--cpu-strict-draft --spec-draft-cpu-strict --cpu-strict-batch-draft --spec-draft-cpu-strict-batch", &[Ignore(PLACEMENT)]),
    one("--prio-draft --spec-draft-prio --prio-batch-draft --spec-draft-prio-batch", &[Ignore(PLACEMENT)]),
    one("--poll-draft --spec-draft-poll --poll-batch-draft --spec-draft-poll-batch", &[Ignore(PLACEMENT)]),
    // Chat templates and reasoning.
    one("--chat-template --chat-template-kwargs", &[Refuse("use `tabla chat` or `tabla serve`")]),
    one("--chat-template-file", &[To("--chat-template"), Refuse("use `tabla chat` or `tabla serve`")]),
    flag("--jinja --no-jinja", &[Ignore("templates are always rendered as Jinja")]),
    one("-rea --reasoning", &[
        In(CHAT, &Value("off: `--reasoning-effort none`", convert::reasoning_of_chat)),
        In(SERVER, &Value("off: `--chat-template-kwargs '{\"enable_thinking\": false}'`", convert::reasoning_of_server)),
        Refuse(USE_CHAT),
    ]),
    one("--reasoning-format", &[Value("deepseek, auto: ignored; others: refused", convert::reasoning_format)]),
    one("--reasoning-effort", &[
        In(SERVER, &Value("a variable of `--chat-template-kwargs`", convert::effort_of_server)),
        Refuse(USE_CHAT),
    ]),
    one("--reasoning-budget", &[Refuse(USE_CHAT)]),
    one("--reasoning-budget-message", &[Refuse("reasoning is closed without a message")]),
    flag("--reasoning-preserve --no-reasoning-preserve", &[Refuse("the chat template decides which reasoning it keeps")]),
    flag("--skip-chat-parsing --no-skip-chat-parsing", &[Refuse("use the endpoint /v1/completions for unparsed text")]),
    flag("--prefill-assistant", &[Ignore("a last message of the assistant is continued")]),
    flag("--no-prefill-assistant", &[Refuse("a last message of the assistant is continued")]),
    // The server.
    one("-a", &[To("--alias"), Refuse("use `tabla serve`")]),
    one("--tags", &[Ignore("models have no tags")]),
    one("-np --parallel", &[To("--parallel"), Ignore("one sequence is decoded")]),
    flag("-cb --cont-batching -nocb --no-cont-batching", &[Ignore("requests are always batched continuously")]),
    flag("--embedding -embd", &[To("--embeddings"), Refuse("use `tabla embed`")]),
    flag("--rerank --reranking", &[
        In(SERVER, &Ignore("models for reranking serve /v1/rerank")),
        Refuse("use `tabla rerank`"),
    ]),
    flag("--metrics --slots --props --webui --ui", &[Ignore("the server always has this endpoint")]),
    flag("--no-slots", &[Ignore("the endpoint has no prompts; API keys protect it")]),
    flag("--no-webui --no-ui", &[Ignore("the chat page has no data, and its requests need the API key")]),
    one("-to", &[To("--timeout"), Refuse("use `tabla serve`")]),
    one("--threads-http", &[Ignore("connections need no threads of their own")]),
    one("--sse-ping-interval", &[Ignore("a comment is sent after 10 seconds without data")]),
    one("--sleep-idle-seconds", &[In(SERVER, &Value("`--idle-timeout`; -1: never", convert::idle_timeout))]),
    one("--cors-origins", &[To("--cors-origin")]),
    one("--cors-methods --cors-headers", &[Refuse("use --cors-origin, which permits the methods and headers of the API")]),
    flag("--cors-credentials --no-cors-credentials", &[Refuse("use --cors-origin; keys are sent in headers")]),
    flag("--reuse-port", &[Refuse("use --port, or a proxy for several processes")]),
    one("--path", &[Refuse("the server sends no files; use a proxy")]),
    one("--api-prefix --ssl-key-file --ssl-cert-file", &[Refuse("use a reverse proxy, with --allowed-host")]),
    one("--slot-save-path", &[Refuse("the server saves no slots; prefixes are cached")]),
    one("--media-path", &[Refuse("the server opens no files of requests")]),
    one("--models-dir --models-preset", &[Refuse("repeat -m [NAME=]FILE")]),
    one("--models-max", &[Refuse("use --memory-budget GIB")]),
    flag("--models-autoload --no-models-autoload", &[Ignore("models are loaded on demand; --preload loads all")]),
    one("--ui-config --webui-config --ui-config-file --webui-config-file", &[Refuse("the chat page has its own settings")]),
    flag("--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy", &[Refuse(NO_TOOLS)]),
    one("--tools --tools-runtime --mcp-servers-config --mcp-servers-json", &[Refuse(NO_TOOLS)]),
    flag("-ag --agent", &[Refuse(NO_TOOLS)]),
    flag("-no-ag --no-agent", &[Ignore(NO_TOOLS)]),
    flag("--spm-infill", &[Refuse("/infill uses the tokens of the model in the order prefix, suffix")]),
    flag("--embd-gemma-default --gpt-oss-20b-default --gpt-oss-120b-default", &[Refuse(PRESET)]),
    flag("--vision-gemma-4b-default --vision-gemma-12b-default --fim-qwen-1.5b-default --fim-qwen-3b-default", &[Refuse(PRESET)]),
    flag("--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default", &[Refuse(PRESET)]),
    // Other commands.
    one("--embd-normalize", &[Value("2: nothing; -1: `--no-normalize`", convert::normalize)]),
    one("--embd-output-format --embd-separator --cls-separator --attention", &[Refuse("`tabla embed` reads a text per line and prints JSON lines")]),
    flag("--stdin", &[Ignore("without TEXT, standard input is the text")]),
    flag("--ids --show-count", &[Ignore("`tabla tokenize --json` prints ids and their number")]),
    flag("--no-parse-special", &[Ignore("special tokens are plain text unless --parse-special is given")]),
    one("--ppl-stride", &[To("--stride"), Refuse("use `tabla perplexity`")]),
    one("-npl", &[To("--n-parallel"), Refuse("use `tabla bench`")]),
    one("-ntg", &[To("--n-gen"), Refuse("use `tabla bench`")]),
    one("-npp", &[To("--n-prompt"), Refuse("use `tabla bench`")]),
    one("-pg -oe --output-err --delay", &[Refuse("use -p, -n, -d and --format of `tabla bench`")]),
    flag("--progress -pps -tgs", &[Ignore("`tabla bench` shows a progress bar on terminals")]),
    flag("--allow-requantize", &[Ignore("a warning names the type of a quantized input")]),
    flag("--leave-output-tensor", &[Refuse("use --output-tensor-type TYPE")]),
    flag("--pure", &[Refuse("use --tensor-type '.*=TYPE'")]),
    flag("--keep-split --dry-run", &[Refuse("`tabla quantize` writes one file")]),
    one("--include-weights --exclude-weights --prune-layers --tensor-type-file --max-buffer-size", &[Refuse("use --tensor-type PATTERN=TYPE")]),
    one("-o --output", &[
        In(&["bench"], &Refuse("use --format FORMAT; > FILE writes to a file")),
        In(&["quantize", "convert"], &Refuse("the output is the argument after the input")),
        In(CHAT, &Refuse("use /save FILE in the chat")),
        In(SERVER, &Refuse("the server writes no file; 2> FILE writes the log")),
        Refuse("redirect standard output: > FILE"),
    ]),
    // Tools without a counterpart.
    flag("--hellaswag --winogrande --multiple-choice --kl-divergence", &[Refuse(TOOL)]),
    one("--hellaswag-tasks --winogrande-tasks --multiple-choice-tasks --save-all-logits --kl-divergence-base --ppl-output-type", &[Refuse(TOOL)]),
    one("--in-file -ofreq --output-frequency --output-format --save-frequency --chunk --from-chunk --output-file -ns --sequences", &[Refuse(TOOL)]),
    flag("--process-output --ppl --no-ppl --show-statistics --check --save-logits -fitp --fit-print", &[Refuse(TOOL)]),
    one("--context-file --chunk-size --chunk-separator --junk --pos --positive-file --negative-file", &[Refuse(TOOL)]),
    one("--pca-batch --pca-iter --method --logits-output-dir --tensor-filter --tts-lang --tts-speaker-file", &[Refuse(TOOL)]),
    one("--diffusion-steps --diffusion-eps --diffusion-algorithm --diffusion-alg-temp --diffusion-block-length", &[Refuse(TOOL)]),
    one("--diffusion-cfg-scale --diffusion-add-gumbel-noise", &[Refuse(TOOL)]),
    flag("--diffusion-visual", &[Refuse(TOOL)]),
    one("-lr --learning-rate -lr-min --learning-rate-min -decay-epochs --learning-rate-decay-epochs -wd --weight-decay", &[Refuse(TOOL)]),
    one("-val-split --val-split -epochs --epochs -opt --optimizer", &[Refuse(TOOL)]),
];
