//! Operations that are one loop over elements, groups or rows of `y`.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind::OpKind;

/// Work of an operation: `units` per token, of `size` elements each.
pub(crate) struct Extent {
    units: u32,
    size: u32,
    tokens: u32,
}

impl Extent {
    /// A unit is an element of the `dim` elements of a token.
    pub(crate) fn elements(dim: u32, tokens: u32) -> Self {
        Self::groups([dim, 1], tokens)
    }

    /// A unit is the row of a token, with `dim` elements.
    pub(crate) fn rows(dim: u32, tokens: u32) -> Self {
        Self::groups([1, dim], tokens)
    }

    /// A unit is one of the `groups` groups of a token, with `dim` elements each.
    pub(crate) fn groups([groups, dim]: [u32; 2], tokens: u32) -> Self {
        Self {
            units: groups,
            size: dim,
            tokens,
        }
    }

    /// Returns the launch of a kernel with this work.
    pub(crate) fn launch<K: Kernel>(self, request: &Request<'_>) -> Launch {
        let launch = request.launch::<K>(Split::Rows(self.units as usize), self.tokens);
        launch.single_thread_if_small([self.tokens, self.units, self.size])
    }
}

/// An operation that is one loop. Threads share its units.
pub(crate) trait Loop: OpKind {
    /// What it uses of a level.
    const USES: Uses = Uses::Loops;

    /// Returns the work for these parameters.
    fn extent(p: &Self::Params) -> Extent;

    /// Runs one thread's part. It is `#[inline(always)]`, as [`Kernel::run`].
    fn run(p: Self::Params, args: Args<'_>);
}

impl<L: Loop> Kernel for L {
    const USES: Uses = <L as Loop>::USES;

    #[inline(always)]
    fn run<S: Simd>(_: S, args: Args<'_>) {
        <L as Loop>::run(args.params(), args);
    }
}

impl<L: Loop> Link for L {
    fn link(request: &Request<'_>) -> Result<Launch> {
        Ok(L::extent(&request.params()).launch::<L>(request))
    }
}
