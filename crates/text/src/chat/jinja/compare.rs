//! Python's order of values, and sorting.

use super::failure::{Outcome, fail};
use super::heap::Heap;
use super::value::{Value, equal};
use std::cmp::Ordering;

/// The order of two values; `None` if one is NaN. Values of different types have no order.
pub(super) fn compare(heap: &Heap, left: &Value, right: &Value) -> Outcome<Option<Ordering>> {
    heap.budget.work(1)?;
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        return Ok(Some(a.cmp(&b)));
    }
    if let (Some(a), Some(b)) = (left.float(), right.float()) {
        return Ok(a.partial_cmp(&b));
    }
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => {
            heap.budget.work(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        (Value::List(a), Value::List(b))
            if a.kind == b.kind || a.kind.is_tuple() && b.kind.is_tuple() =>
        {
            for (x, y) in a.items.iter().zip(&b.items) {
                if !equal(x, y, &heap.budget)? {
                    return compare(heap, x, y);
                }
            }
            Ok(Some(a.items.len().cmp(&b.items.len())))
        }
        _ => fail(format_args!(
            "cannot compare {} with {}",
            left.type_name(),
            right.type_name()
        )),
    }
}

/// Sorts items by a key, like Python's `sorted`.
pub(super) fn sorted<T>(heap: &Heap, items: Vec<T>, key: fn(&T) -> &Value) -> Outcome<Vec<T>> {
    heap.budget
        .charge(size_of::<T>().saturating_mul(2 * items.len()))?;
    merge_sort(heap, items, key)
}

/// The standard library's sort panics if an order is inconsistent, as that of NaN is.
fn merge_sort<T>(heap: &Heap, mut items: Vec<T>, key: fn(&T) -> &Value) -> Outcome<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let left = merge_sort(heap, items, key)?;
    let right = merge_sort(heap, right, key)?;
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let less = compare(heap, key(b), key(a))? == Some(Ordering::Less);
        out.extend(if less { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(out)
}
