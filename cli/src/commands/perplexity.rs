//! `tabla perplexity`: the perplexity of a text.
//!
//! The text is split into windows, because the context of a model is limited. By default, windows do
//! not overlap and the second half of each is scored, as in llama.cpp's `llama-perplexity`. With a
//! stride, windows overlap and each token is scored once, as in "Perplexity of fixed-length models" of
//! the `transformers` documentation. Results are comparable only for the same text, tokenizer, windows
//! and stride.

use crate::args::{DeviceArgs, ModelArg, prompt, source_name};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tabla::text::{EncodeOptions, Tokenizer};
use tabla::{Session, Source};

/// Default window size in tokens, as in llama.cpp.
const WINDOW: u32 = 512;

#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    /// Text file; "-" reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    model: ModelArg,
    /// Window size in tokens [default: 512, or the model's training context if it is smaller]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    ctx_size: Option<u32>,
    /// Overlapping windows that start every S tokens; each token is scored once, in its first window.
    /// Without it, windows do not overlap and the second half of each is scored
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Maximum number of windows [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.ctx_size.unwrap_or(0))?;
    let text = if args.file == Path::new("-") {
        prompt::stdin_to_end()?
    } else {
        prompt::file(&args.file)?
    };
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let mut session = Session::new(loaded.model);
    let tokens = session.tokenizer().encode(&text, EncodeOptions::PROMPT)?;
    let context = session.facts().context;
    let plan = Plan {
        window: args.ctx_size.unwrap_or(context.min(WINDOW)) as usize,
        stride: args.stride.map(|stride| stride as usize),
    };
    let mut windows = plan.windows(tokens.len())?;
    windows.truncate(args.chunks.map_or(usize::MAX, |n| n as usize));
    terminal::catch_interrupt(session.canceller())?;
    let start = Instant::now();
    let sums = score(&mut session, &plan, &tokens, &windows)?;
    let report = Report {
        source: &source,
        device: loaded.profile.to_string(),
        plan,
        tokens: tokens.len(),
        windows: windows.len(),
        sums,
        took: start.elapsed(),
    };
    if args.json {
        return terminal::line(&report.json().to_string());
    }
    report.print()
}

/// The splitting of a text into windows.
#[derive(Clone, Copy)]
struct Plan {
    /// Maximum number of tokens in a window.
    window: usize,
    /// Distance between the starts of overlapping windows, in tokens.
    stride: Option<usize>,
}

/// A range of tokens that the model evaluates together.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    tokens: Range<usize>,
    /// Index of the first scored token.
    first_scored: usize,
}

impl Plan {
    /// Returns the windows of a text with this number of tokens.
    fn windows(&self, tokens: usize) -> Result<Vec<Window>, Failure> {
        let window = self.window;
        let windows: Vec<Window> = match self.stride {
            Some(stride) if stride > window => {
                let message =
                    format!("--stride {stride} exceeds the window size of {window} tokens");
                return Err(Failure::Usage(message));
            }
            Some(stride) => {
                let mut scored = 1;
                let windows = (0..tokens).step_by(stride).map_while(|start| {
                    let end = tokens.min(start + window);
                    // The first token of a window has no context.
                    let first_scored = scored.max(start + 1);
                    scored = end;
                    (first_scored < end).then_some(Window {
                        tokens: start..end,
                        first_scored,
                    })
                });
                windows.collect()
            }
            None => {
                let starts = (0..tokens / window).map(|at| at * window);
                let windows = starts.map(|start| Window {
                    tokens: start..start + window,
                    first_scored: start + window / 2 + 1,
                });
                windows.collect()
            }
        };
        if windows.is_empty() {
            let min = self.stride.map_or(window, |_| 2);
            return Err(Failure::new(format!(
                "text has {}, expected at least {min}: reduce the window size with -c",
                terminal::counted(tokens, "token")
            )));
        }
        Ok(windows)
    }

    /// Returns the input tokens of a window. In windows without overlap, BOS replaces the first token if
    /// the model uses BOS, as in llama.cpp.
    fn tokens(&self, text: &[u32], window: &Window, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut tokens = text[window.tokens.clone()].to_vec();
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        if let (None, Some(bos)) = (self.stride, bos) {
            tokens[0] = bos;
        }
        tokens
    }
}

/// Scores the windows.
fn score(
    session: &mut Session,
    plan: &Plan,
    tokens: &[u32],
    windows: &[Window],
) -> Result<Sums, Failure> {
    let mut sums = Sums::default();
    let total: usize = windows.iter().map(|window| window.tokens.len()).sum();
    let bar = Progress::new("scoring", total as u64);
    let mut done = 0;
    for window in windows {
        let input = plan.tokens(tokens, window, session.tokenizer());
        let first = window.first_scored - window.tokens.start;
        let mut progress = |fed, _| bar.set_position(done + fed as u64);
        let scores = session.score(&input, first, &mut progress)?;
        scores.iter().for_each(|score| sums.add(f64::from(*score)));
        done += window.tokens.len() as u64;
        bar.set_message(&format!("perplexity {:.4}", sums.perplexity()));
    }
    Ok(sums)
}

/// Sums over the log-probabilities.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    /// Sum of `-ln p`.
    sum: f64,
    /// Sum of the squares of `-ln p`.
    squares: f64,
}

impl Sums {
    fn add(&mut self, logprob: f64) {
        self.count += 1;
        self.sum -= logprob;
        self.squares += logprob * logprob;
    }

    /// Mean of `-ln p`.
    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// `exp(mean(-ln p))`.
    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the perplexity: that of the mean, times the derivative of the exponential. NaN
    /// for one token.
    fn error(&self) -> f64 {
        let count = self.count as f64;
        let variance = (self.squares / count - self.mean().powi(2)).max(0.0);
        self.perplexity() * (variance / (count - 1.0)).sqrt()
    }
}

/// The results.
struct Report<'a> {
    source: &'a Source,
    device: String,
    plan: Plan,
    tokens: usize,
    windows: usize,
    sums: Sums,
    took: Duration,
}

impl Report<'_> {
    fn print(&self) -> Result<(), Failure> {
        let (perplexity, error) = (self.sums.perplexity(), self.sums.error());
        terminal::line(&format!("perplexity {perplexity:.4} +/- {error:.5}"))?;
        let stride = match self.plan.stride {
            Some(stride) => format!("stride {stride}"),
            None => "no overlap".to_string(),
        };
        terminal::note(&format!(
            "scored {} of {} in {:.1} s; {} of {}, {stride}; {}",
            self.sums.count,
            terminal::counted(self.tokens, "token"),
            self.took.as_secs_f64(),
            terminal::counted(self.windows, "window"),
            terminal::counted(self.plan.window, "token"),
            terminal::one_line(&self.device)
        ));
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "model": source_name(self.source),
            "device": self.device,
            "perplexity": self.sums.perplexity(),
            "error": self.sums.error(),
            "nll": self.sums.mean(),
            "tokens": self.tokens,
            "scored": self.sums.count,
            "windows": self.windows,
            "window": self.plan.window,
            "stride": self.plan.stride,
            "seconds": self.took.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(window: usize, stride: Option<usize>, tokens: usize) -> Vec<(usize, usize, usize)> {
        let windows = Plan { window, stride }
            .windows(tokens)
            .expect("enough tokens");
        let parts = windows.iter();
        parts
            .map(|w| (w.tokens.start, w.first_scored, w.tokens.end))
            .collect()
    }

    #[test]
    fn scores_second_halves_without_stride() {
        assert_eq!(windows(8, None, 17), [(0, 5, 8), (8, 13, 16)]);
        assert_eq!(windows(5, None, 5), [(0, 3, 5)]);
        assert!(
            Plan {
                window: 8,
                stride: None
            }
            .windows(7)
            .is_err()
        );
    }

    #[test]
    fn scores_each_token_once_with_stride() {
        assert_eq!(
            windows(8, Some(4), 14),
            [(0, 1, 8), (4, 8, 12), (8, 12, 14)]
        );
        assert_eq!(windows(8, Some(4), 12), [(0, 1, 8), (4, 8, 12)]);
        assert_eq!(windows(8, Some(8), 12), [(0, 1, 8), (8, 9, 12)]);
        assert_eq!(windows(8, Some(3), 5), [(0, 1, 5)]);
        for tokens in [0, 1] {
            let plan = Plan {
                window: 8,
                stride: Some(4),
            };
            assert!(plan.windows(tokens).is_err());
        }
        let too_large = Plan {
            window: 8,
            stride: Some(9),
        };
        assert!(matches!(too_large.windows(99), Err(Failure::Usage(_))));
    }

    #[test]
    fn computes_the_standard_error() {
        let mut sums = Sums::default();
        sums.add(-1.0);
        sums.add(-3.0);
        let perplexity = 2.0f64.exp();
        assert!((sums.perplexity() - perplexity).abs() < 1e-12);
        // Two tokens with a variance of 1.
        assert!((sums.error() - perplexity).abs() < 1e-12);
    }
}
