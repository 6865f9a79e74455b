//! The list of operations.
//!
//! Each row has the formula, the enum variant, the name, and the operands with their access.
//! The name is that of the shader `shaders/<name>.wgsl` and of the operation in listings and
//! profiles; operands are in the order of the shader bindings. The enum, its methods, operand
//! indices, a type per operation ([`kind`](super::kind)) and `docs/OPS.md` are generated from the list.
//!
//! A row that ends with `per element` or `per row` is an operation that changes `y` in place. It also defines the
//! method of the builder: the operands before `y` (`x`: activations, others: a vector) and `y`, then the values in
//! parentheses, which are parameters of the shader next to `tokens` and `dim`.
//!
//! Shapes: activations have `tokens` rows, of which the first `state.active_rows` are active; W is `[rows,
//! cols]`, row-major, in any storage type. All other operands are f32 unless noted.

/// Passes all rows of the list to the macro `$each`, after the tokens `$start`.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_op {
    ($($each:tt)::+ $(, $($start:tt)*)?) => {
        $($each)::+! { $($($start)*)?
            /// `y[t, :] = W[token[t], :]`
            Embed = embed(w: read, y: write, state: read);
            /// `y[t, :] += W[stride * position[t] + type_stride * token_type[t] + offset, :]`
            EmbedAdd = embed_add(w: read, y: update, state: read);
            /// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i]`
            RmsNorm = rms_norm(x: read, w: read, y: write, state: read);
            /// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)`
            UnitNorm = unit_norm(x: read, y: write, state: read);
            /// `y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]`
            LayerNorm = layer_norm(x: read, w: read, y: write, state: read);
            /// `y[r] = W[r, :] . x`, for one token
            Gemv = gemv(w: read, x: read, y: write, state: read);
            /// `y[r] += W[r, :] . x`, for one token
            GemvAdd = gemv_add(w: read, x: read, y: update, state: read);
            /// `y[t, r] = W[r, :] . x[t, :]`
            Gemm = gemm(w: read, x: read, y: write, state: read);
            /// `y[t, r] += W[r, :] . x[t, :]`
            GemmAdd = gemm_add(w: read, x: read, y: update, state: read);
            /// `y[t, g, :] = x[t, g, :]` in another storage type, in blocks of 32
            Convert = convert(x: read, y: write, state: read);
            /// `q[t, i] = round(x[t, i] 127 / m)` in int8, `d[t] = m / 127`, `m = max(1e-5, max
            /// |x[t, :]|)`
            BitQuantize = bit_quantize(x: read, q: write, d: write, state: read);
            /// `y[t, r] = (W[r, :] . q[t, :]) d[t] scale`, with the digits (-1, 0, 1) of a ternary
            /// W
            BitMat = bit_mat(w: read, q: read, d: read, y: write, state: read);
            /// `y[t, r] += (W[r, :] . q[t, :]) d[t] scale`, with the digits (-1, 0, 1) of a ternary
            /// W
            BitMatAdd = bit_mat_add(w: read, q: read, d: read, y: update, state: read);
            /// `y[t, i] += b[i]`
            AddBias = add_bias(b: read, y: update, state: read) per element();
            /// `q = rot(q, position); k_cache[row(position)] = rot(k, position);
            /// v_cache[row(position)] = v`;
            /// `row(p) = PAGE pages[sequence, p / PAGE] + p % PAGE`; sliding-window layers use
            /// their pages as a ring buffer
            RopeKv = rope_kv(k: read, v: read, freqs: read, pages: read, q: update, k_cache: update, v_cache: update, state: read);
            /// `q = rot(q, position); k_cache[row(position)] = rot(k, position)`, rows as in `rope_kv`
            RopeKeys = rope_keys(k: read, freqs: read, q: update, pages: read, k_cache: update, state: read);
            /// `y[t, :] = k_cache[row(position[t] - 1)]`, 0 for position 0; rows as in `rope_kv`
            PreviousRow = previous_row(y: write, k_cache: read, state: read, pages: read);
            /// `x[t, h, :] = rot(x[t, h, :], position)`
            Rope = rope(freqs: read, x: update, state: read);
            /// `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group,
            /// seen, :]`;
            /// `seen` are the cache rows of the last `window` positions including its own, or of the
            /// first `positions`, without the first `skip`, `cap(s) = softcap tanh(s / softcap)`. With sinks, `exp(sinks[h])` is added
            /// to the sum of the softmax.
            Attention = attention(q: read, k_cache: read, v_cache: read, pages: read, sinks: read, y: write, state: read);
            /// `y[t, h, p, :]` = for part p of the positions `seen` in `attention`: the weighted
            /// sum of values, the maximum score, the sum of weights
            AttendPart = attend_part(q: read, k_cache: read, v_cache: read, pages: read, y: write, state: read);
            /// `y[t, h, :]` = the weighted sum of values over all parts of `x[t, h]`, divided by
            /// the sum of weights and of the sink
            AttendJoin = attend_join(x: read, sinks: read, y: write, state: read);
            /// `y[t, offset + p] = scale q[t, head, :] . k[p, head / group, :]` for the positions `p`
            /// below `positions`, for one head
            AttentionScores = attention_scores(q: read, k_cache: read, y: update, pages: read, state: read);
            /// `y[t, c] = act(bias[c] + sum_j w[j, c] x[t - taps + 1 + j, c])`; the inputs at positions before
            /// those of this pass are in `conv_state`, 0 before position 0; `act` is SiLU or the identity
            ConvTail = conv_tail(x: read, w: read, conv_state: update, pages: read, bias: read, y: write, state: read);
            /// `y[t, h] = rate[h] softplus(a[t, h] + bias[h])`, `y[t, heads + h] = sigmoid(b[t, h])`
            DeltaGates = delta_gates(a: read, b: read, rate: read, bias: read, y: write, state: read);
            /// `S = e^gate S; S += k (beta (v - S^T k))^T; y[t, h, :] = S^T q`, the gated delta rule for
            /// every value head h;
            /// `[q | k | v] = x[t, :]`, q and k of unit length, `q / sqrt(key_dim)`, `[gate | beta] =
            /// gates[t, :]`
            DeltaNet = delta_net(x: read, gates: read, recurrent_state: update, pages: read, y: write, state: read);
            /// `y[t, h] = rate[h] dt`, `y[t, heads + h] = dt`, `dt = clamp(softplus(x[t, h] + bias[h]), low, high)`
            SsmGates = ssm_gates(x: read, rate: read, bias: read, y: write, state: read);
            /// `S = e^gate S + b (dt v)^T; y[t, h, :] = S^T c + d[h] v`, the state-space model of Mamba-2 for every
            /// head h; `[v | b | c] = x[t, :]`, heads of a group share b and c, `[gate | dt] = gates[t, :]`
            SsmScan = ssm_scan(x: read, gates: read, recurrent_state: update, pages: read, d: read, y: write, state: read);
            /// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i] * silu(gate[t, g, i])`
            RmsGate = rms_gate(x: read, w: read, gate: read, y: write, state: read);
            /// `y[t, i] = act(gate[t, i]) * up[t, i]`; `act` as in `activate`
            Glu = glu(gate: read, up: read, y: write, state: read);
            /// `y[t, s, i] = act(x[t, s, i]) * x[t, s, dim + i]`; `act` as in `activate`
            GluHalves = glu_halves(x: read, y: write, state: read);
            /// `y[t, i] = g sigmoid(alpha g) (u + 1)`, `g = min(gate[t, stride i], limit)`, `u = clamp(up[t,
            /// stride i + stride - 1], -limit, limit)`: the gated linear unit of gpt-oss, of two inputs
            /// (stride 1) or of pairs of columns of one input (stride 2)
            GluClamped = glu_clamped(gate: read, up: read, y: write, state: read);
            /// `y[t, i] = act(y[t, i])`; `act` is SiLU, GELU (erf), GELU (tanh), `max(y, 0)^2`, `max(y, 0)`,
            /// the sigmoid or the identity
            Activate = activate(y: update, state: read);
            /// `y[t, s, i] += b[ids[t, s], i]`
            AddExpertBias = add_expert_bias(b: read, ids: read, y: update, state: read);
            /// `y[t, i] += scale * x[t, i]`
            Add = add(x: read, y: update, state: read) per element(scale: f32);
            /// `y[t, i] *= factor`
            Scale = scale(y: update, state: read) per element(factor: f32);
            /// `y[t, i] *= 1 + beta ln(1 + floor(position[t] / length))`
            ScaleAt = scale_at(y: update, state: read);
            /// `x_j[t, i] += sum_k c[t, 4 j + k] x_k[t, i]` for the four streams `x_0` to `x_3`
            MixStreams = mix_streams(c: read, x0: update, x1: update, x2: update, x3: update, state: read);
            /// `x_j[t, i] += (offset + gain c[t, j]) v[t, i]` for the streams from `x_first` of `x_0` to `x_3`
            AddToStreams = add_to_streams(c: read, v: read, x0: update, x1: update, x2: update, x3: update, state: read);
            /// `y[t, i] *= sqrt(mean(x[t, :]^2) / max(mean(y[t, :]^2), floor))`
            MatchRms = match_rms(x: read, y: update, state: read) per row(floor: f32);
            /// `y[t, i] = max(y[t, i] - (mean(y[t, :]) + deviations sigma(y[t, :])), 0)`
            GaussianTopK = gaussian_top_k(y: update, state: read) per row(deviations: f32);
            /// `y[t, i] *= w[i mod len]`
            Mul = mul(w: read, y: update, state: read);
            /// `y[t, i] = cap * tanh(y[t, i] / cap)`
            SoftCap = soft_cap(y: update, state: read) per element(cap: f32);
            /// `y[t, g, i] = x[t, g, offset + i]`
            Columns = columns(x: read, y: write, state: read);
            /// `y[t, i] = x[t, index[i]]`, -inf where the index is negative
            PickColumns = pick_columns(x: read, index: read, y: write, state: read);
            /// `y[t, g, :] = [a[t, g, :], b[t, g, :]]`
            Concat = concat(a: read, b: read, y: write, state: read);
            /// `y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group,
            /// :]`;
            /// `seen` are the rows of the same sequence at a distance of at most `reach`
            SelfAttention = self_attention(q: read, k: read, v: read, y: write, state: read);
            /// `ids[t, :]` = the k largest of `p + bias` in the best groups, ties by lowest id; `y[t,
            /// s] = p[ids[t, s]]`, divided by `eps` plus their sum if `normalize`, times `scale
            /// scales[ids[t, s]]`;
            /// `p` is `softmax(x[t, :])`, `sigmoid(x[t, :])`, `sqrt(ln(1 + exp(x[t, :])))`, or 1
            /// divided among near-equal logits (`SparseMixer`)
            Route = route(x: read, bias: read, scales: read, ids: write, y: write, state: read);
            /// `ids[t, h] = h`: experts that are the matrices of heads
            HeadIds = head_ids(ids: write, state: read);
            /// `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`; 0 for an expert id out of range
            Experts = experts(w: read, x: read, ids: read, y: write, state: read);
            /// `tiles[i, :]` = an expert id, the number of pairs `k t + s` with this `ids[t, s]`,
            /// and the pairs;
            /// in the order of expert ids, ids out of range as one additional expert after the last
            GroupByExpert = group_by_expert(ids: read, tiles: write, state: read);
            /// `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]` for the pairs in `tiles`; 0 for
            /// an expert id out of range
            GroupedGemm = grouped_gemm(w: read, x: read, tiles: read, y: write, state: read);
            /// `y[t, i] += sum_s w[t, s] x[t, s, i]`
            Combine = combine(x: read, w: read, y: update, state: read);
            /// `y[t, i] = x[t, i]` in 32-bit words, from the memory of one device to that of another
            Transfer = transfer(x: read, y: write, state: read);
            /// `y[t, 3 i + k] = x[stride t + k - 1, i]`, 0 for rows outside of x
            Unfold = unfold(x: read, y: write, state: read);
            /// `y[0, :] = x[active_rows - 1, :]`
            LastRow = last_row(x: read, y: write, state: read);
            /// `y[t, offset + i] = x[t, i]`
            Capture = capture(x: read, y: update, state: read);
            /// `y[t, offset + i] = ids[t, i]` as f32
            CaptureIds = capture_ids(ids: read, y: update, state: read);
            /// `y[t, column + i] = keep y[t, column + i] + gain v[stride (position[t] - first), i]`
            /// for rows with `first <= position[t] < end`;
            /// a factor of 0 removes its term, also if that is not finite; rows out of range of v
            /// are unchanged
            Edit = edit(v: read, y: update, state: read);
            /// `y[t, column + i] -= strength (y[t, column..column + count] . v) v[i]` for rows with
            /// `first <= position[t] < end`
            ProjectOut = project_out(v: read, y: update, state: read);
            /// `y[t, offset + h positions + p] = softmax(cap(scale q[t, h, :] . k[h / group, seen,
            /// :]))[p]` for the positions `p` below `positions`;
            /// 0 for positions that are not `seen` in `attention`
            AttentionWeights = attention_weights(q: read, k_cache: read, y: update, pages: read, sinks: read, state: read);
            /// `y[t, offset + h positions + p] = softmax(scale q[t, h, :] . k[seen, h / group,
            /// :])[p]` for the positions `p` below `positions`;
            /// 0 for positions that are not `seen` in `self_attention`
            SelfAttentionWeights = self_attention_weights(q: read, k: read, y: update, state: read);
            /// `y[t, i] *= scales[sequence[t], adapter]`; 0 if the scale is 0
            AdapterScale = adapter_scale(scales: read, y: update, state: read);
            /// `y[t, i] = x[t, i] + bias(i)`; -inf if `i` is a stop token and the position is
            /// before `stop_from`
            Bias = bias(x: read, biases: read, y: write, samplers: read, state: read);
            /// `y[t, i] = x[t, i]` if the rules of Whisper allow token `i` next, otherwise -inf
            SpeechFilter = speech_filter(x: read, masks: read, history: read, y: write, samplers: read, state: read);
            /// `y[t, i] = -inf` if bit `i` of the mask of the sequence is 0
            Mask = mask(masks: read, y: update, samplers: read, state: read);
            /// `y[t, i] = repeated(x[t, i]) - count(i) frequency - presence` if `i` is among the
            /// last `repeat_last_n` tokens of the history;
            /// `repeated(x) = x / repeat` if `x > 0`, otherwise `x repeat`
            Penalize = penalize(x: read, history: read, y: write, samplers: read, state: read);
            /// `y[t, i] = x[t, i] - multiplier base^(n(i) - allowed)` if `n(i) >= allowed`: `n(i)`
            /// is the length of the longest suffix of the history,
            /// without sequence breakers, that also occurs earlier in it, followed by `i`;
            /// on entry, `y = x`
            Dry = dry(x: read, history: read, breakers: read, y: update, samplers: read, state: read);
            /// `maxima[t, p] = max(x[t, p part .. (p + 1) part])`
            PartMaxima = part_maxima(x: read, maxima: write, state: read);
            /// `y[t, i] = -inf` if `y[t, i] < max(y[t, :]) - top_n_sigma sigma(y[t, :])`
            TopNSigma = top_n_sigma(y: update, maxima: update, samplers: read, state: read);
            /// `y[t, i] = -inf` outside the `top_k` largest; ties with the smallest of them are
            /// kept
            TopK = top_k(y: update, maxima: update, samplers: read, state: read);
            /// `y[t, i] = -inf` outside the smallest set of tokens with the lowest `|-ln p -
            /// entropy|` whose `p` sum to `typical_p`;
            /// `p = softmax(y[t, :])`
            Typical = typical(y: update, maxima: read, samplers: read, state: read);
            /// `y[t, i] = -inf` outside the smallest set of the largest values whose softmax sums
            /// to `top_p`
            TopP = top_p(y: update, maxima: update, samplers: read, state: read);
            /// `y[t, i] = -inf` if `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`
            MinP = min_p(y: update, maxima: update, samplers: read, state: read);
            /// `y[t, i] = -inf` above the smallest value whose softmax is at least `xtc_threshold`,
            /// if `u(seed, position[t]) < xtc_probability`; u is drawn with Philox4x32-10
            Xtc = xtc(y: update, maxima: read, samplers: read, state: read);
            /// `y[t, i] /= temperature`, without dynamic temperature
            Temper = temper(y: update, samplers: read, state: read);
            /// `y[t, i] /= low + (high - low) (entropy(y[t, :]) / ln count)^exponent`, with dynamic
            /// temperature;
            /// `count` is the number of values above -inf
            DynamicTemper = dynamic_temper(y: update, maxima: read, samplers: read, state: read);
            /// `y[t, i] = -inf` if `-log2(softmax(y[t, :])[i]) > mu`, except for the largest
            Mirostat = mirostat(y: update, maxima: update, samplers: read, state: read);
            /// `y[t, i] += -ln(-ln(u(seed, position[t], i)))`; u is drawn with Philox4x32-10
            Gumbel = gumbel(y: update, samplers: read, state: read);
            /// `ids[t] = argmax(x[t, :])`, ties by lowest id
            Argmax = argmax(x: read, ids: write, state: read);
            /// `ids[t, p] = argmax(x[t, p part .. (p + 1) part])`, ties by lowest id
            ArgmaxPart = argmax_part(x: read, ids: write, state: read);
            /// `ids[t]` = the id among `parts[t, :]` with the largest `x[t, id]`, ties by lowest id
            ArgmaxJoin = argmax_join(x: read, parts: read, ids: write, state: read);
            /// `mu[sequence[t]] -= eta (-log2(softmax(x[t, :])[ids[t]]) - tau)`; mu is stored in
            /// `samplers`
            MirostatMu = mirostat_mu(x: read, maxima: read, ids: read, samplers: update, state: read);
            /// `logprobs[sequence[t]] = ln softmax(x[t, :])` of `ids[t]` and of the 20 largest,
            /// ties by lowest id
            Logprobs = logprobs(x: read, ids: read, logprobs: write, samplers: read, state: read);
            /// `token[t] = ids[t], position[t] += 1, history[sequence[t], position[t]] = ids[t]`;
            /// finished rows are moved after the active rows
            Advance = advance(ids: read, history: update, samplers: read, state: update);
        }
    };
}

/// Access of an operation to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
    Read,
    /// Overwritten for the active rows; not read.
    Write,
    /// Read and written in place.
    Update,
}

/// An operand of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Name in the formula and in the shader.
    pub name: &'static str,
    /// Access to the operand.
    pub access: Access,
}

macro_rules! access {
    (read) => {
        Access::Read
    };
    (write) => {
        Access::Write
    };
    (update) => {
        Access::Update
    };
}

macro_rules! define_ops {
    (
        $($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+) $(per $unit:ident($($value:ident: $type:ty),*))?;)+
    ) => {
        /// An operation of the table.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[doc = $formula])+ $op,)+ }

        impl Op {
            /// All operations, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$op,)+];

            /// Returns the name of the shader and of the operation in listings.
            pub fn name(self) -> &'static str {
                match self { $(Self::$op => stringify!($stem),)+ }
            }

            /// Returns the formula.
            pub fn formula(self) -> &'static str {
                match self { $(Self::$op => concat!($($formula),+).trim_ascii(),)+ }
            }

            /// Returns the operands in the order of the shader bindings.
            pub fn operands(self) -> &'static [Operand] {
                match self {
                    $(Self::$op => &[$(Operand { name: stringify!($operand), access: access!($access) },)+],)+
                }
            }
        }
    };
}
for_each_op!(define_ops);
