//! One suite for every store.
#![cfg(test)]

#[path = "store_world/suite.rs"]
mod suite;
#[path = "store_world/mod.rs"]
mod world;

use agent_reach::store::memory::MemoryStore;
use agent_reach::store::sqlite::{SqliteFile, SqliteStore};
use agent_reach::store::{Store, StoreOptions};
use suite::Lives;

/// Puts a store through the suite.
macro_rules! conformance {
    ($with:path: $($test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            $with(super::suite::$test);
        })*
    };
}

macro_rules! suite {
    ($with:path) => {
        conformance! {
            $with:
            an_open_task_is_found_as_it_was_accepted_and_moved,
            who_had_a_task_last_is_shown_when_nobody_has_it,
            an_ended_task_is_no_longer_open_and_owed_to_both_recipients,
            ends_that_are_owed_come_in_pages_of_rows_and_bytes,
            a_task_is_shown_to_its_owner_alone,
            an_ended_task_s_call_is_kept_for_as_long_as_the_task_and_read_by_whom_it_concerns,
            tasks_are_listed_newest_first_and_filtered,
            a_request_id_is_kept_while_its_task_is_open_and_then_as_long_as_its_end_says,
            an_end_that_keeps_no_request_id_frees_it,
            no_request_id_is_kept_longer_than_its_task,
            a_call_is_kept_with_all_its_ends,
            what_was_kept_before_gives_way,
            a_call_does_not_take_the_request_id_of_an_open_task,
            what_names_no_task_or_an_ended_one_is_ignored_and_counted,
            counts_follow_the_states_into_the_next_life,
            what_has_expired_goes_in_steps_and_what_has_not_stays,
            a_step_removes_no_more_bytes_than_it_may,
            a_delivery_is_due_at_the_end_and_again_when_it_was_said,
            a_receipt_of_the_caller_ends_deliveries,
            records_come_back_in_blocks_and_the_oldest_go_first,
            figures_are_those_of_what_is_stored,
        }
    };
}

mod sqlite {
    suite!(super::in_a_file);
}

mod memory {
    suite!(super::in_memory);
}

/// A file that stays while the store before it is closed and opened.
struct InAFile(SqliteFile, Option<SqliteStore>);

impl Lives for InAFile {
    fn open(&mut self) -> &mut dyn Store {
        self.1 = None;
        self.1.insert(self.0.open_writer().unwrap())
    }
}

/// Its next life is the same, since nothing of it would outlive the first.
impl Lives for MemoryStore {
    fn open(&mut self) -> &mut dyn Store {
        self
    }
}

fn in_a_file(test: fn(&mut dyn Lives)) {
    let home = tempfile::tempdir().unwrap();
    let file = SqliteFile::take(&StoreOptions::new(home.path().join("store.db"))).unwrap();
    test(&mut InAFile(file, None));
}

fn in_memory(test: fn(&mut dyn Lives)) {
    test(&mut MemoryStore::new());
}
