//! THE list of operations.
//!
//! A row gives the formula, the enum's name, the stem and the operands with their access.
//! The stem names the shader `shaders/<stem>.wgsl` and the operation in listings and profiles; the
//! operands are in the order of the shader's bindings. From the list come the enum, its facts, the
//! indices of operands and `docs/OPS.md`; the table of CPU kernels is a match on the enum.
//!
//! Shapes: `tokens` rows of activations, of which the first `state.live` count; W is
//! `[rows, cols]`, row after row, in any storage type. Everything else is f32.

/// Hands every row of the list to the macro `$each`.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_op {
    ($each:ident) => {
        $each! {
            /// `y[t, :] = W[token[t], :]`
            Embed = embed(w: read, y: write, state: read);
            /// `y[t, :] += W[stride * position[t] + offset, :]`
            EmbedAdd = embed_add(w: read, y: update, state: read);
            /// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i]`
            RmsNorm = rms_norm(x: read, w: read, y: write, state: read);
            /// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)`
            UnitNorm = unit_norm(x: read, y: write, state: read);
            /// `y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]`
            LayerNorm = layer_norm(x: read, w: read, y: write, state: read);
            /// `y[r] = W[r, :] . x`, one token
            Gemv = gemv(w: read, x: read, y: write, state: read);
            /// `y[r] += W[r, :] . x`, one token
            GemvAdd = gemv_add(w: read, x: read, y: update, state: read);
            /// `y[r] = W[r, :] . (x / sqrt(mean(x^2) + eps) * n)`, one token
            GemvNorm = gemv_norm(w: read, x: read, n: read, y: write, state: read);
            /// `y[r] = W[r, :] . (act(gate) * up)`, one token, `act` as in `activate`
            GemvGlu = gemv_glu(w: read, gate: read, up: read, y: write, state: read);
            /// `y[r] += W[r, :] . (act(gate) * up)`, one token, `act` as in `activate`
            GemvGluAdd = gemv_glu_add(w: read, gate: read, up: read, y: update, state: read);
            /// `y[t, r] = W[r, :] . x[t, :]`
            Gemm = gemm(w: read, x: read, y: write, state: read);
            /// `y[t, r] += W[r, :] . x[t, :]`
            GemmAdd = gemm_add(w: read, x: read, y: update, state: read);
            /// `q[t, i] = round(x[t, i] 127 / m), d[t] = m / 127`, `m = max(1e-5, |x[t, :]|)`
            BitQuantize = bit_quantize(x: read, q: write, d: write, state: read);
            /// `y[t, r] = (W[r, :] . q[t, :]) d[t] scale`, the digits of a ternary W
            BitMat = bit_mat(w: read, q: read, d: read, y: write, state: read);
            /// `y[t, r] += (W[r, :] . q[t, :]) d[t] scale`, the digits of a ternary W
            BitMatAdd = bit_mat_add(w: read, q: read, d: read, y: update, state: read);
            /// `y[t, i] += b[i]`
            AddBias = add_bias(b: read, y: update, state: read);
            /// `q = rot(q, position); k_cache[row(position)] = rot(k, position); v_cache[row(position)] = v`;
            /// `row(p) = PAGE pages[sequence, p / PAGE] + p % PAGE`, the pages of a layer with a window a ring
            RopeKv = rope_kv(k: read, v: read, freqs: read, pages: read, q: update, k_cache: update, v_cache: update, state: read);
            /// `x[t, h, :] = rot(x[t, h, :], position)`
            Rope = rope(freqs: read, x: update, state: read);
            /// `y[t, h, :] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :])) v[h / group, seen, :]`;
            /// `seen` are the rows of the last `window` positions up to its own, `cap(s) = softcap tanh(s / softcap)`
            Attention = attention(q: read, k_cache: read, v_cache: read, pages: read, y: write, state: read);
            /// `y[t, h, p, :]` = the weighted values of part p of what `attention` sees, the greatest score in it, the sum of the weights
            AttendPart = attend_part(q: read, k_cache: read, v_cache: read, pages: read, y: write, state: read);
            /// `y[t, h, :]` = the weighted values of all parts of `x[t, h]`, over the sum of their weights
            AttendJoin = attend_join(x: read, y: write, state: read);
            /// `y[t, i] = act(gate[t, i]) * up[t, i]`, `act` as in `activate`
            Glu = glu(gate: read, up: read, y: write, state: read);
            /// `y[t, i] = act(y[t, i])`, `act` one of SiLU, GELU by erf or by tanh, `max(y, 0)^2`, `max(y, 0)`
            Activate = activate(y: update, state: read);
            /// `y[t, i] += scale * x[t, i]`
            Add = add(x: read, y: update, state: read);
            /// `y[t, i] *= factor`
            Scale = scale(y: update, state: read);
            /// `y[t, i] *= w[i mod len]`
            Mul = mul(w: read, y: update, state: read);
            /// `y[t, i] = cap * tanh(y[t, i] / cap)`
            SoftCap = soft_cap(y: update, state: read);
            /// `y[t, i] = x[t, offset + i]`
            Columns = columns(x: read, y: write, state: read);
            /// `y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group, :]`;
            /// `seen` are the rows of its own sequence, `reach` before and behind it at most
            SelfAttention = self_attention(q: read, k: read, v: read, y: write, state: read);
            /// `ids[t, :]` = the k largest of `softmax(x[t, :])`, lowest id first; `y[t, s] = softmax(x[t, :])[ids[t, s]]`, over their sum if `normalise`
            Route = route(x: read, ids: write, y: write, state: read);
            /// `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`, 0 for an expert that is not there
            Experts = experts(w: read, x: read, ids: read, y: write, state: read);
            /// `tiles[i, :]` = an expert, how many pairs `k t + s` with this `ids[t, s]`, and these pairs;
            /// experts in their order, those that are not there as one behind the last
            GroupByExpert = group_by_expert(ids: read, tiles: write, state: read);
            /// `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`, 0 for an expert that is not there; the pairs in `tiles`
            GroupedGemm = grouped_gemm(w: read, x: read, tiles: read, y: write, state: read);
            /// `y[t, i] += sum_s w[t, s] x[t, s, i]`
            Combine = combine(x: read, w: read, y: update, state: read);
            /// `y[0, :] = x[live - 1, :]`
            LastRow = last_row(x: read, y: write, state: read);
            /// `y[t, i] = x[t, i] + bias(i)`, and -inf where `i` is a stop token in front of position `stop_from`
            Bias = bias(x: read, biases: read, y: write, samplers: read, state: read);
            /// `y[t, i] = -inf` where bit `i` of the sequence's mask is 0
            Mask = mask(masks: read, y: update, samplers: read, state: read);
            /// `y[t, i] = repeated(x[t, i]) - count(i) frequency - presence`, where `i` is among the last tokens of the history;
            /// `repeated(x) = x / repeat` over 0 and `x repeat` below
            Penalize = penalize(x: read, history: read, y: write, samplers: read, state: read);
            /// `y[t, i] = x[t, i] - multiplier base^(n(i) - allowed)`, where `i` would go on with a repetition of `n(i)` tokens,
            /// `allowed` at least: the end of the history, without breakers, that stands in it before `i` too
            Dry = dry(x: read, history: read, breakers: read, y: write, samplers: read, state: read);
            /// `y[t, i] = -inf` where `y[t, i] < max(y[t, :]) - top_n_sigma sigma(y[t, :])`
            TopNSigma = top_n_sigma(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` where fewer than all but the `top_k` largest are smaller; ties with the last one stay
            TopK = top_k(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` outside the smallest set of those with the least `|-ln p - entropy|`, `p = softmax(y[t, :])`,
            /// whose `p` sum to `typical_p`
            Typical = typical(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` outside the smallest set of the largest whose softmax sums to `top_p`
            TopP = top_p(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` where `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`
            MinP = min_p(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` above the smallest number whose softmax is at least `xtc_threshold`,
            /// where `u(seed, position[t]) < xtc_probability`, u by Philox4x32-10
            Xtc = xtc(y: update, samplers: read, state: read);
            /// `y[t, i] /= temperature`, where that has no range
            Temper = temper(y: update, samplers: read, state: read);
            /// `y[t, i] /= low + (high - low) (entropy(y[t, :]) / ln count)^exponent`, where the temperature has a range;
            /// `count` numbers are over -inf
            DynamicTemper = dynamic_temper(y: update, samplers: read, state: read);
            /// `y[t, i] = -inf` where `-log2(softmax(y[t, :])[i]) > mu`, but for the largest
            Mirostat = mirostat(y: update, samplers: read, state: read);
            /// `y[t, i] += -ln(-ln(u(seed, position[t], i)))`, u by Philox4x32-10
            Gumbel = gumbel(y: update, samplers: read, state: read);
            /// `ids[t] = argmax(x[t, :])`, lowest id first
            Argmax = argmax(x: read, ids: write, state: read);
            /// `mu[sequence[t]] -= eta (-log2(softmax(x[t, :])[ids[t]]) - tau)`, mu in `samplers`
            MirostatMu = mirostat_mu(x: read, ids: read, samplers: update, state: read);
            /// `log_probs[sequence[t]] = ln softmax(x[t, :])` of `ids[t]`, and of the 20 largest, lowest id first among equals
            LogProbs = log_probs(x: read, ids: read, log_probs: write, samplers: read, state: read);
            /// `token[t] = ids[t], position[t] += 1, history[sequence[t], position[t]] = ids[t]`;
            /// rows that are done go behind those that live
            Advance = advance(ids: read, history: update, samplers: read, state: update);
        }
    };
}

/// How an operation touches an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Overwritten where the command's tokens live; never read.
    Write,
    /// Read and written in place.
    Update,
}

/// An operand of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Its name in the formula and in the shader.
    pub name: &'static str,
    /// How it is touched.
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
    ($($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+);)+) => {
        /// An operation of the table.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[doc = $formula])+ $op,)+ }

        impl Op {
            /// Every operation, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$op,)+];

            /// The stem: name of the shader and in listings.
            pub fn name(self) -> &'static str {
                match self { $(Self::$op => stringify!($stem),)+ }
            }

            /// The formula, as the list has it.
            pub fn formula(self) -> &'static str {
                match self { $(Self::$op => concat!($($formula),+).trim_ascii(),)+ }
            }

            /// The operands in the order of the shader's bindings.
            pub fn operands(self) -> &'static [Operand] {
                match self {
                    $(Self::$op => &[$(Operand { name: stringify!($operand), access: access!($access) },)+],)+
                }
            }
        }
    };
}
for_each_op!(define_ops);
