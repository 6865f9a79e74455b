//! WAV headers of programs that write to a pipe and do not know the length.

/// Replaces a length of 0 of the samples, if samples follow, by the largest one, which means up to the
/// end. `head` is the start of a file. Returns whether the length was replaced.
pub(crate) fn open_end(head: &mut [u8]) -> bool {
    let Some(at) = unknown_length(head) else {
        return false;
    };
    for field in [4, at] {
        head[field..field + 4].fill(u8::MAX);
    }
    true
}

/// Returns the position of the length of the samples, if it is 0 and bytes follow.
fn unknown_length(head: &[u8]) -> Option<usize> {
    if head.get(..4)? != b"RIFF" || head.get(8..12)? != b"WAVE" {
        return None;
    }
    let mut at = 12usize;
    loop {
        let (name, length) = head.get(at..at.checked_add(8)?)?.split_at(4);
        let length = u32::from_le_bytes(length.try_into().ok()?);
        if name == b"data" {
            return (length == 0 && head.len() > at + 8).then_some(at + 4);
        }
        // Chunks are padded to an even number of bytes.
        let padded = usize::try_from(length)
            .ok()?
            .checked_add(length as usize % 2)?;
        at = at.checked_add(8)?.checked_add(padded)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(data: u32) -> Vec<u8> {
        let mut head = b"RIFF\0\0\0\0WAVE".to_vec();
        // A chunk of odd length, and its padding.
        head.extend(b"LIST\x03\0\0\0abc\0");
        head.extend(b"data");
        head.extend(data.to_le_bytes());
        head
    }

    #[test]
    fn only_a_length_of_0_with_samples_is_replaced() {
        let mut open = [header(0), vec![1, 2]].concat();
        assert!(open_end(&mut open));
        assert_eq!(open[4..8], [u8::MAX; 4]);
        assert_eq!(open[open.len() - 10..], *b"data\xff\xff\xff\xff\x01\x02");
        for mut other in [
            header(0),
            [header(2), vec![1, 2]].concat(),
            header(0)[..30].to_vec(),
            b"RIFF\0\0\0\0WAVEfmt \xff\xff\xff\xff".to_vec(),
            b"fLaC".to_vec(),
            Vec::new(),
        ] {
            let before = other.clone();
            assert!(!open_end(&mut other));
            assert_eq!(other, before);
        }
    }
}
