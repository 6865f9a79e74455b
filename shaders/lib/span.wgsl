// Range of visible positions of a sequence: `count` positions starting at `first`.

#import pages

struct Span { own: u32, first: u32, count: u32 }

fn row_of(span: Span, i: u32) -> u32 {
    return row_at(span.own, span.first + i);
}
