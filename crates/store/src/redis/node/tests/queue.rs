//! The queue of a node: its order, its bound, and the depth it reports.

use std::sync::Arc;

use engine::Caller;
use parking_lot::Mutex;

use crate::observer::Observer;
use crate::redis::node::queue::{Queue, QueueDepth, Refusal, Taken};

const A: Caller = Caller(1);
const B: Caller = Caller(2);
const C: Caller = Caller(3);

#[tokio::test]
async fn the_queue_is_bounded_and_keeps_the_order_of_a_caller() {
    let queue = Queue::new(2);
    assert_eq!((queue.push(A, 1), queue.push(A, 2)), (Ok(None), Ok(None)));
    assert_eq!(queue.push(A, 3), Err((Refusal::Full, 3)));
    assert!(queue.ready().await);
    assert_eq!(queue.take(1, |_| Some(1)), Taken { items: vec![1], stale: vec![], left: 1, is_full: true });
    assert_eq!(queue.take(9, |_| Some(1)), Taken { items: vec![2], stale: vec![], left: 0, is_full: false });
    queue.set_bound(1);
    assert_eq!((queue.push(A, 4), queue.push(A, 5)), (Ok(None), Err((Refusal::Full, 5))));
    assert_eq!((queue.push_first(2, 6), queue.push_first(2, 7)), (Ok(()), Err((Refusal::Full, 7))));
    assert_eq!(queue.take(9, |_| Some(1)).items, [6, 4]);
}

#[tokio::test]
async fn callers_take_turns() {
    let queue = Queue::new(99);
    for item in 10..16 {
        assert_eq!(queue.push(A, item), Ok(None));
    }
    for (caller, item) in [(B, 20), (B, 21), (C, 30)] {
        assert_eq!(queue.push(caller, item), Ok(None));
    }
    assert_eq!(queue.take(2, |_| Some(1)).items, [10, 20]);
    // B had the last turn, so C has one before A.
    assert_eq!(queue.push(C, 31), Ok(None));
    assert_eq!(queue.take(4, |_| Some(1)).items, [30, 11, 21, 31]);
    assert_eq!(queue.take(99, |_| Some(1)).items, [12, 13, 14, 15]);
}

#[tokio::test]
async fn a_full_queue_takes_the_item_of_a_caller_with_few_in_the_place_of_one_of_the_caller_with_most() {
    let queue = Queue::new(5);
    for item in 10..15 {
        assert_eq!(queue.push(A, item), Ok(None));
    }
    assert_eq!(queue.push(A, 15), Err((Refusal::Full, 15)));
    assert_eq!((queue.push(B, 20), queue.push(B, 21)), (Ok(Some(14)), Ok(Some(13))));
    assert_eq!(queue.push(B, 22), Err((Refusal::Full, 22)), "2 of 5 items, and A has no 2 more than that");
    assert_eq!(queue.push(C, 30), Ok(Some(12)));
    assert_eq!(queue.take(99, |_| Some(1)).items, [10, 20, 30, 11, 21]);
}

#[tokio::test]
async fn an_item_that_goes_first_is_never_displaced() {
    let queue = Queue::new(1);
    for item in 0..4 {
        assert_eq!(queue.push_first(4, item), Ok(()));
    }
    assert_eq!(queue.push(A, 10), Err((Refusal::Full, 10)));
    assert_eq!(queue.take(99, |_| Some(1)).items, [0, 1, 2, 3]);
}

#[tokio::test]
async fn stale_items_are_removed_and_use_neither_the_budget_nor_a_turn() {
    let queue = Queue::new(9);
    for item in 0..6 {
        assert_eq!(queue.push(A, item), Ok(None));
    }
    assert_eq!(queue.push(B, 9), Ok(None));
    let taken = queue.take(2, |item| (item % 2 == 1).then_some(1));
    assert_eq!(taken, Taken { items: vec![1, 9], stale: vec![0], left: 4, is_full: true });
    assert_eq!((queue.push(B, 7), queue.push(C, 0)), (Ok(None), Ok(None)));
    assert_eq!(queue.drop_stale(|item| *item < 5), 2);
    assert_eq!(queue.take(9, |_| Some(1)).items, [5, 7]);
}

#[tokio::test]
async fn an_item_over_the_budget_is_taken_alone_and_in_its_turn() {
    let queue = Queue::new(9);
    for item in [2, 3, 9, 1] {
        assert_eq!(queue.push(A, item), Ok(None));
    }
    let take = || {
        let taken = queue.take(5, |item| Some(*item));
        (taken.items, taken.is_full)
    };
    let taken = [take(), take(), take(), take()];
    assert_eq!(taken, [(vec![2, 3], true), (vec![9], true), (vec![1], false), (vec![], false)]);
}

#[tokio::test]
async fn closing_wakes_all_waiters() {
    let queue = Queue::<u8>::new(1);
    let close = async { queue.close() };
    let (first, second, ()) = tokio::join!(queue.ready(), queue.ready(), close);
    assert!(!first && !second);
    assert_eq!(queue.push(A, 1), Err((Refusal::Closed, 1)));
    assert_eq!(queue.push_first(1, 1), Err((Refusal::Closed, 1)));
}

#[derive(Debug, Default)]
struct LastDepth(Mutex<usize>);

impl Observer for LastDepth {
    fn queue_depth(&self, requests: usize) {
        *self.0.lock() = requests;
    }
}

#[test]
fn the_queue_depth_is_the_sum_over_the_nodes_that_exist() {
    let last = Arc::new(LastDepth::default());
    let first = QueueDepth::new(Arc::clone(&last) as Arc<dyn Observer>);
    let second = first.for_node();
    first.set(1);
    second.set(3);
    assert_eq!(*last.0.lock(), 4);
    first.set(2);
    assert_eq!(*last.0.lock(), 5);
    drop(second);
    assert_eq!(*last.0.lock(), 2, "the queue of a node ends with the node");
}
