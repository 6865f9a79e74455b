//! `tabla perplexity`: how well a model predicts a text.
//!
//! The text is cut into windows, since a model sees no more than its context, and each has some
//! tokens scored. Windows side by side, with their second halves scored, are what llama.cpp's
//! `llama-perplexity` does; windows that overlap, so that each token is scored once, are what
//! `transformers` describes as "Perplexity of fixed-length models". Numbers of the two forms, of
//! other windows or of other tokenizers say nothing about each other.

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

/// Tokens of a window where nobody says how many: llama.cpp's.
const WINDOW: u32 = 512;

#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    /// The text, or "-" for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    model: ModelArg,
    /// Tokens of a window [default: 512, or as many as the model was trained for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    ctx_size: Option<u32>,
    /// Windows begin S tokens apart, and each token is scored once, in the first window that has it;
    /// without it windows stand side by side and the second half of each is scored
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Windows at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Writes one JSON object
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
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let mut session = Session::new(opened.model);
    let tokens = session.tokenizer().encode(&text, EncodeOptions::PROMPT)?;
    let context = session.facts().context;
    let plan = Plan {
        window: args.ctx_size.unwrap_or(context.min(WINDOW)) as usize,
        stride: args.stride.map(|stride| stride as usize),
    };
    let mut windows = plan.windows(tokens.len())?;
    windows.truncate(args.chunks.map_or(usize::MAX, |most| most as usize));
    terminal::catch_interrupt(session.canceller())?;
    let begun = Instant::now();
    let sums = score(&mut session, &plan, &tokens, &windows)?;
    let report = Report {
        source: &source,
        device: opened.profile.to_string(),
        plan,
        tokens: tokens.len(),
        windows: windows.len(),
        sums,
        took: begun.elapsed(),
    };
    if args.json {
        return terminal::line(&report.json().to_string());
    }
    report.say()
}

/// How a text is cut.
#[derive(Clone, Copy)]
struct Plan {
    /// Tokens of a window at most.
    window: usize,
    /// Tokens from one window to the next, where they overlap.
    stride: Option<usize>,
}

/// Tokens that go through the model together.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    tokens: Range<usize>,
    /// The first of them that is scored.
    from: usize,
}

impl Plan {
    /// The windows of a text of so many tokens.
    fn windows(&self, tokens: usize) -> Result<Vec<Window>, Failure> {
        let window = self.window;
        let windows: Vec<Window> = match self.stride {
            Some(stride) if stride > window => {
                let message = format!("--stride {stride} is over the window of {window} tokens");
                return Err(Failure::Usage(message));
            }
            Some(stride) => {
                let mut scored = 1;
                let windows = (0..tokens).step_by(stride).map_while(|start| {
                    let end = tokens.min(start + window);
                    // What begins a window has nothing in front of it.
                    let from = scored.max(start + 1);
                    scored = end;
                    (from < end).then_some(Window {
                        tokens: start..end,
                        from,
                    })
                });
                windows.collect()
            }
            None => {
                let starts = (0..tokens / window).map(|at| at * window);
                let windows = starts.map(|start| Window {
                    tokens: start..start + window,
                    from: start + window / 2 + 1,
                });
                windows.collect()
            }
        };
        if windows.is_empty() {
            let least = self.stride.map_or(window, |_| 2);
            return Err(Failure::new(format!(
                "the text has {tokens} tokens, {least} are needed; -c takes smaller windows"
            )));
        }
        Ok(windows)
    }

    /// The tokens of a window as the model gets them. Those that stand side by side begin as texts
    /// do: with the token for it in the place of their first, where the model has one.
    fn tokens(&self, of: &[u32], window: &Window, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut tokens = of[window.tokens.clone()].to_vec();
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        if let (None, Some(bos)) = (self.stride, bos) {
            tokens[0] = bos;
        }
        tokens
    }
}

/// Scores what is to be scored of each window.
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
        let of_window = plan.tokens(tokens, window, session.tokenizer());
        let from = window.from - window.tokens.start;
        let mut at = |fed, _| bar.at(done + fed as u64);
        let scores = session.score(&of_window, from, &mut at)?;
        scores.iter().for_each(|score| sums.add(f64::from(*score)));
        done += window.tokens.len() as u64;
        bar.says(&format!("perplexity {:.4}", sums.perplexity()));
    }
    Ok(sums)
}

/// What the log-probabilities so far add up to.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    /// Of `-ln p`.
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, log_prob: f64) {
        self.count += 1;
        self.sum -= log_prob;
        self.squares += log_prob * log_prob;
    }

    /// The mean of `-ln p`.
    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// `exp(mean(-ln p))`.
    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of the mean, carried over to the perplexity by its derivative. One token
    /// has none.
    fn error(&self) -> f64 {
        let count = self.count as f64;
        let variance = (self.squares / count - self.mean().powi(2)).max(0.0);
        self.perplexity() * (variance / (count - 1.0)).sqrt()
    }
}

/// What came out.
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
    fn say(&self) -> Result<(), Failure> {
        let (perplexity, error) = (self.sums.perplexity(), self.sums.error());
        terminal::line(&format!("perplexity {perplexity:.4} +/- {error:.5}"))?;
        let stride = match self.plan.stride {
            Some(stride) => format!("{stride} apart"),
            None => "side by side".to_string(),
        };
        terminal::note(&format!(
            "scored {} of {} tokens in {:.1} s; {} windows of {} tokens, {stride}; {}",
            self.sums.count,
            self.tokens,
            self.took.as_secs_f64(),
            self.windows,
            self.plan.window,
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
        let windows = Plan { window, stride }.windows(tokens).expect("enough");
        let parts = windows.iter();
        parts
            .map(|w| (w.tokens.start, w.from, w.tokens.end))
            .collect()
    }

    #[test]
    fn halves_of_windows_side_by_side_are_scored() {
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
    fn each_token_is_scored_once_behind_what_overlaps() {
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
        let far = Plan {
            window: 8,
            stride: Some(9),
        };
        assert!(matches!(far.windows(99), Err(Failure::Usage(_))));
    }

    #[test]
    fn the_error_is_that_of_the_mean() {
        let mut sums = Sums::default();
        sums.add(-1.0);
        sums.add(-3.0);
        let perplexity = 2.0f64.exp();
        assert!((sums.perplexity() - perplexity).abs() < 1e-12);
        // The variance is 1, of two tokens.
        assert!((sums.error() - perplexity).abs() < 1e-12);
    }
}
