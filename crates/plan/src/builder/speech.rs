//! Operations of speech models: spectrogram, convolution, sampling stages of transcripts.

use super::base::Builder;
use super::operand::X;
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, SamplingStage};

/// Tokens that the rules of Whisper refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeechTokens {
    /// A space, which is no first token.
    pub blank: u32,
    /// End of the transcript.
    pub eot: u32,
    /// Token of prompts without timestamps.
    pub no_timestamps: u32,
    /// First timestamp; the others follow it, up to the end of the vocabulary.
    pub first_timestamp: u32,
}

impl Builder<'_> {
    /// Returns the log-mel spectrogram, `[tokens, channels]`, which the host writes.
    pub fn mel(&mut self, channels: u32) -> X {
        let tokens = self.shape.tokens;
        X {
            slot: self.buffer_slot("mel", DType::F32, [tokens, channels], BufferId::Mel),
            tokens,
            cols: channels,
        }
    }

    /// Emits the inputs of a convolution of width 3 with padding 1 along the rows of `x`: row `t`
    /// has the rows `stride t - 1` to `stride t + 1`, interleaved. Returns `[tokens / stride, 3
    /// cols]`.
    pub fn unfold(&mut self, x: X, stride: u32) -> X {
        if stride == 0 || !x.tokens.is_multiple_of(stride) {
            self.fail(format!(
                "convolution over {} rows: expected a multiple of the stride {stride}",
                x.tokens
            ));
        }
        let y = self.scratch("u", x.tokens / stride.max(1), 3 * x.cols);
        let params = params::unfold::Params {
            tokens: y.tokens,
            channels: x.cols,
            stride,
        };
        let slots = [x.slot, y.slot, self.state];
        self.emit(Op::Unfold, None, &slots, &params, [y.cols, y.tokens]);
        y
    }

    /// Emits the sampling stages of transcripts: the tokens that the rules allow, the largest of
    /// them (greedy) or a random one (sampled), and their log-probabilities at temperature 1.
    pub fn speech_stages(&mut self, vocab: u32, tokens: SpeechTokens) {
        for stage in [SamplingStage::Greedy, SamplingStage::Sampled] {
            self.begin_stage(stage);
            let logits = self.logits_slot(vocab);
            let filtered = self.speech_filter(logits, tokens);
            let ids = if stage == SamplingStage::Greedy {
                self.argmax(filtered)
            } else {
                let noisy = self.columns(filtered, 0, vocab);
                self.in_place(Op::Temper, noisy);
                self.in_place(Op::Gumbel, noisy);
                self.argmax(noisy)
            };
            self.logprobs_of(filtered, ids);
            self.advance(ids, logits.tokens);
        }
    }

    fn speech_filter(&mut self, x: X, tokens: SpeechTokens) -> X {
        let (rows, vocab) = (x.tokens, x.cols);
        let words = vocab.div_ceil(u32::BITS);
        let shape = [self.shape.sequences, words];
        let masks = self.buffer_slot("masks", DType::U32, shape, BufferId::Masks);
        let y = self.scratch("s", rows, vocab);
        let params = params::speech_filter::Params {
            tokens: rows,
            vocab,
            words,
            context: self.shape.context,
            blank: tokens.blank,
            eot: tokens.eot,
            no_timestamps: tokens.no_timestamps,
            first_timestamp: tokens.first_timestamp,
        };
        let (history, samplers) = (self.history(), self.samplers());
        let slots = [x.slot, masks, history, y.slot, samplers, self.state];
        self.emit(Op::SpeechFilter, None, &slots, &params, [1, rows]);
        y
    }
}
