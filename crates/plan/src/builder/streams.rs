//! Several residual streams of which a layer reads one, as in Gemma 3n (`AltUp`).

use super::base::Builder;
use super::operand::X;
use tabla_core::op::functions::STREAMS;
use tabla_core::op::list::Op;
use tabla_core::op::params;

/// Streams `x_0` to `x_3`.
type Streams = [X; STREAMS as usize];

/// Factor of a value that is added to streams: `offset + gain c[t, j]` for stream `j`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamFactor {
    /// First stream to which the value is added.
    pub first: u32,
    /// Constant term.
    pub offset: f32,
    /// Factor of the coefficients; 0: the factor is `offset`.
    pub gain: f32,
}

impl Builder<'_> {
    /// Emits `x_j += sum_k c[t, 4 j + k] x_k` for all streams, with coefficients `[tokens, 16]`.
    pub fn mix_streams(&mut self, c: X, streams: Streams) {
        self.check_streams(c, STREAMS * STREAMS, streams);
        let [X { tokens, cols, .. }, ..] = streams;
        let params = params::mix_streams::Params { tokens, dim: cols };
        let [x0, x1, x2, x3] = streams.map(|x| x.slot);
        let slots = [c.slot, x0, x1, x2, x3, self.state];
        self.emit(Op::MixStreams, None, &slots, &params, [cols, tokens]);
    }

    /// Emits `x_j += (offset + gain c[t, j]) v` for the streams from `first`, with coefficients
    /// `[tokens, 4]`.
    pub fn add_to_streams(&mut self, factor: StreamFactor, [c, v]: [X; 2], streams: Streams) {
        self.check_streams(c, STREAMS, streams);
        self.check_same_shape(v, streams[0]);
        let [X { tokens, cols, .. }, ..] = streams;
        let StreamFactor {
            first,
            offset,
            gain,
        } = factor;
        let params = params::add_to_streams::Params {
            tokens,
            dim: cols,
            first,
            offset,
            gain,
        };
        let [x0, x1, x2, x3] = streams.map(|x| x.slot);
        let slots = [c.slot, v.slot, x0, x1, x2, x3, self.state];
        self.emit(Op::AddToStreams, None, &slots, &params, [cols, tokens]);
    }

    fn check_streams(&mut self, c: X, coefficients: u32, streams: Streams) {
        for x in streams {
            self.check_same_shape(streams[0], x);
        }
        if [c.tokens, c.cols] != [streams[0].tokens, coefficients] {
            self.fail(format!(
                "shape mismatch: expected {coefficients} coefficients of {} rows, got [{}, {}]",
                streams[0].tokens, c.tokens, c.cols
            ));
        }
    }
}
