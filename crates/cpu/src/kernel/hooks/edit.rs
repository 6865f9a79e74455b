//! Changes of columns of the rows at some positions, one loop each.
//!
//! A unit is a row.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::{operands, params};

/// `y[t, column + i] = keep y[t, column + i] + gain v[stride (position[t] - first), i]`
impl Kernel for kind::Edit {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::edit::AT;
        let p: params::edit::Params = args.params();
        let [width, column, count] = [p.width, p.column, p.count].map(|n| n as usize);
        let (v, rows) = (args.f32s(AT.v), args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let position = rows[t].position;
            if !(p.first..p.end).contains(&position) {
                continue;
            }
            let row = p.stride.checked_mul(position - p.first);
            let Some(row) = row.filter(|row| *row < p.rows) else {
                continue;
            };
            let v = match p.gain == 0.0 {
                true => &[],
                false => &v[row as usize * count..][..count],
            };
            let y = &mut y.unit(t, width)[column..][..count];
            // A factor of 0 times infinity is NaN.
            match (p.keep == 0.0, p.gain == 0.0) {
                (true, true) => y.fill(0.0),
                (true, false) => y.iter_mut().zip(v).for_each(|(y, v)| *y = p.gain * v),
                (false, true) => y.iter_mut().for_each(|y| *y *= p.keep),
                (false, false) => {
                    for (y, v) in y.iter_mut().zip(v) {
                        *y = p.keep * *y + p.gain * v;
                    }
                }
            }
        }
    }
}

impl Link for kind::Edit {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::edit::Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.count))
    }
}

/// `y[t, column + i] -= strength (y[t, column..column + count] . v) v[i]`
impl Kernel for kind::ProjectOut {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::project_out::AT;
        let p: params::project_out::Params = args.params();
        let [width, column, count] = [p.width, p.column, p.count].map(|n| n as usize);
        let (v, rows) = (&args.f32s(AT.v)[..count], args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            if !(p.first..p.end).contains(&rows[t].position) {
                continue;
            }
            let y = &mut y.unit(t, width)[column..][..count];
            let factor = p.strength * math::dot(y, v);
            for (y, v) in y.iter_mut().zip(v) {
                *y -= factor * v;
            }
        }
    }
}

impl Link for kind::ProjectOut {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::project_out::Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.count))
    }
}
