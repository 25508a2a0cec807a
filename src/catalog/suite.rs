//! The contract of `Catalog` as checks that run on every implementation.
//!
//! Each check takes a fresh catalog. `catalog_suite!` makes one test of each for an implementation.

pub(super) mod copies;
mod differential;
mod kit;
pub(super) mod listing;
pub(super) mod locks;
pub(super) mod multipart;
pub(super) mod objects;
pub(super) mod versions;

pub(super) use differential::{Pair, Step, steps};
pub(super) use kit::{Kit, packed, put};
pub(super) use listing::{pages_agree, some_keys};

/// One `#[tokio::test]` per check. `$make` gives `(guard, Arc<dyn Catalog>, Arc<ManualClock>)`.
macro_rules! catalog_suite {
    ($make:expr) => {
        $crate::catalog::suite::checks!($make =>
            objects: bucket_names_are_taken_once, bucket_ids_are_never_reused,
                buckets_are_listed_by_owner_and_name, a_bucket_with_objects_stays,
                a_put_is_read_back_whole, an_overwrite_replaces_the_version,
                modification_times_of_a_key_never_go_back, conditions_guard_puts,
                conditions_guard_deletes, deletes_answer_each_entry, a_deleted_key_is_gone,
                versions_of_unversioned_buckets_are_null, usage_is_exact,
                a_file_must_be_pending, blobs_die_once, abandoned_blobs_die,
                unknown_buckets_are_refused, users_and_keys_come_and_go,
                known_blobs_are_told_apart, access_lists_are_kept,
                configurations_come_and_go;
            copies: a_copy_shares_the_blob, a_copy_onto_itself_keeps_the_blob,
                a_copy_of_a_changed_source_is_refused, a_copied_part_shares_the_blob,
                packed_blobs_follow_their_references, a_relocated_blob_is_found_again,
                a_rename_moves_everything_but_the_bytes, a_rename_keeps_versions;
            multipart: an_upload_becomes_an_object, a_repeated_completion_answers_the_same,
                wrong_part_lists_are_refused, small_parts_are_refused, a_part_is_replaced,
                an_aborted_upload_leaves_nothing, parts_are_paged, unlisted_parts_are_released,
                checksums_are_combined_and_verified, sizes_are_verified,
                completions_heed_conditions, uploads_end_with_their_bucket,
                uploads_are_listed_in_order, uploads_are_paged;
            listing: flat_pages, common_prefixes_are_one_row, a_start_inside_a_prefix_shows_it,
                delimiters_of_any_length, keys_are_ordered_by_bytes, a_page_of_none,
                listed_fields_are_right, buckets_do_not_mix;
            locks: a_bucket_is_locked_for_good, a_governance_retention_can_be_bypassed,
                a_compliance_retention_ends_by_time_alone, a_legal_hold_has_no_end,
                new_versions_get_the_default, a_batch_goes_on_behind_a_lock,
                a_renamed_object_stays_locked;
            versions: every_version_is_kept, what_was_there_before_is_the_null_version,
                a_delete_covers_and_can_be_undone, the_next_version_comes_to_the_front,
                a_suspended_bucket_has_one_null_version, blobs_live_as_long_as_a_version,
                a_bucket_with_versions_stays, entries_are_decided_in_order,
                many_versions_go_at_once, versions_are_copied_and_changed,
                conditions_see_through_markers, versions_are_listed_and_paged;
        );
    };
}

macro_rules! checks {
    ($make:expr => $($module:ident: $($check:ident),+ $(,)?;)+) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $check() {
                let (_guard, catalog, clock) = $make().await;
                let kit = $crate::catalog::suite::Kit::new(catalog, clock).await;
                $crate::catalog::suite::$module::$check(&kit).await;
            })+
        })+
    };
}

pub(super) use {catalog_suite, checks};
