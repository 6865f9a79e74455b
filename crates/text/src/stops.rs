//! Stop strings: text goes on until one of them comes, wherever tokens end, and no part of it gets out.

/// Looks for stop strings in a text that comes in pieces.
#[derive(Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that is not given out yet: it may be how a stop string begins.
    held: String,
    out: String,
    is_stopped: bool,
}

impl StopStrings {
    /// Looks for these; an empty one is never found.
    pub fn new(stops: &[String]) -> Self {
        let stops: Vec<String> = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self {
            held: String::with_capacity(2 * longest + 64),
            out: String::with_capacity(2 * longest + 64),
            stops,
            is_stopped: false,
        }
    }

    /// Takes the next text.
    pub fn push(&mut self, text: &str) {
        self.out.clear();
        if self.is_stopped {
            return;
        }
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop));
        let sure = match found.min() {
            Some(at) => {
                self.is_stopped = true;
                at
            }
            None => self.held.len() - self.beginning(),
        };
        self.out.push_str(&self.held[..sure]);
        self.held.drain(..sure);
    }

    /// What surely comes before any stop string, of what was pushed last and held back before; nothing
    /// once one has come.
    pub fn text(&self) -> &str {
        &self.out
    }

    /// Ends the text with its last part: what was held back is no stop string.
    pub fn flush(&mut self, text: &str) -> &str {
        self.push(text);
        if !self.is_stopped {
            self.out.push_str(&self.held);
        }
        self.held.clear();
        &self.out
    }

    /// Whether a stop string has come.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Bytes at the end of what is held that a stop string may begin with.
    fn beginning(&self) -> usize {
        let held = &self.held;
        let begins = |from: usize| {
            let end = &held[from..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let longest = self.stops.iter().map(|stop| stop.len() - 1).max();
        let first = held.len() - longest.unwrap_or(0).min(held.len());
        let mut starts = (first..held.len()).filter(|at| held.is_char_boundary(*at));
        starts
            .find(|at| begins(*at))
            .map_or(0, |at| held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of a text in pieces, and whether it was stopped.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut strings = StopStrings::new(&stops);
        let mut out = String::new();
        for piece in pieces {
            strings.push(piece);
            out.push_str(strings.text());
        }
        out.push_str(strings.flush(""));
        (out, strings.is_stopped())
    }

    #[test]
    fn a_stop_string_is_found_wherever_pieces_end() {
        let text = "one END two";
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(run(&["END"], &[a, b]), ("one ".to_string(), true), "{cut}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(|c| &**c).collect();
        assert_eq!(run(&["END"], &letters), ("one ".to_string(), true));
    }

    #[test]
    fn what_only_begins_like_one_comes_out() {
        assert_eq!(
            run(&["END"], &["an E", "N", "Emy EN"]),
            ("an ENEmy EN".to_string(), false)
        );
        assert_eq!(
            run(&["aab"], &["aaa", "a", "c"]),
            ("aaaac".to_string(), false)
        );
        assert_eq!(run(&["aab"], &["aa", "a", "b"]), ("a".to_string(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".to_string(), false));
        assert_eq!(run(&["", "x"], &["abx"]), ("ab".to_string(), true));
    }

    #[test]
    fn the_first_of_several_counts() {
        assert_eq!(
            run(&["cd", "bcde"], &["abc", "de"]),
            ("a".to_string(), true)
        );
        assert_eq!(
            run(&["é", "\n\n"], &["caf", "\n", "é"]),
            ("caf\n".to_string(), true)
        );
    }

    /// Random texts over two letters, held against a search in the whole text.
    #[test]
    fn random_texts_stop_where_a_search_says() {
        let mut state = 7u64;
        let mut word = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from((state >> 33) % below).expect("small")
        };
        for _ in 0..2000 {
            let mut text = |most| -> String {
                let len = word(most) + 1;
                (0..len).map(|_| ["a", "b", "ß"][word(3)]).collect()
            };
            let stops: Vec<String> = (0..2).map(|_| text(4)).collect();
            let pieces: Vec<String> = (0..6).map(|_| text(4)).collect();
            let whole = pieces.concat();
            let end = stops.iter().filter_map(|stop| whole.find(stop)).min();
            let wanted = end.map_or(&*whole, |end| &whole[..end]);
            let given: Vec<&str> = pieces.iter().map(|p| &**p).collect();
            let asked: Vec<&str> = stops.iter().map(|s| &**s).collect();
            let (out, stopped) = run(&asked, &given);
            // What completes one string may come before a longer one that begins earlier.
            assert_eq!(stopped, end.is_some(), "{stops:?} in {pieces:?}");
            assert!(
                wanted.starts_with(&out) || out.starts_with(wanted),
                "{stops:?} in {pieces:?}"
            );
            assert!(
                stops.iter().all(|stop| !out.contains(&**stop)),
                "{stops:?} in {pieces:?}"
            );
        }
    }
}
