//! Public reports against lock wrappers and libraries, as far as one server and no terminal can
//! show them. Most are covered where their behaviour is tested; this is the index, with tests
//! for those that have no other place.
//!
//! | report | test |
//! |---|---|
//! | hashicorp/consul#2022: the shell dies, its job goes on | `release::a_job_that_was_stopped_keeps_its_lock_until_its_last_process_is_gone` |
//! | tiian/flom#15: released under a job that cleans up | `release::a_job_that_cleans_up_for_longer_than_its_ttl_keeps_its_lock` |
//! | fish-shell/fish-shell#4007: a handler over an ignored signal | `transparency::ignored_and_blocked_signals_of_the_job_are_those_of_a_direct_run` |
//! | hashicorp/consul#1210, #2489: a signal that kills only the wrapper | `signals::each_signal_reaches_the_job_exactly_once` |
//! | box/etcdb#28: the renewer outlives the holder | `signals::nothing_that_extends_the_lock_outlives_a_killed_wrapper` |
//! | MagnaCapax/PMSS#905: a daemon left by the job blocks the wrapper | `release::a_job_that_leaves_a_daemon_returns_at_once_and_the_daemon_lives` |
//! | hashicorp/consul#947: the exit code is lost | `exit_status::every_exit_code_is_passed_through` |
//! | openclaw/openclaw#24866: a missing command keeps the lock | `exit_status::a_command_that_does_not_exist_is_127_and_takes_nothing` |
//! | simstudioai/sim#6864: locked, and nobody knows | `lost_replies::a_lock_whose_reply_was_lost_is_given_back` |
//! | hashicorp/consul#9788: the job runs beyond the lease | `deadline::*` |
//! | craftcms/cms#11658: the release hangs | `release::a_release_that_finds_redis_stopped_gives_up_soon_and_keeps_the_jobs_status` |
//! | linagora/cozy-stack#4911: one failed renewal is a lost lock | `renewal::one_failed_extension_is_repeated_until_it_succeeds` |
//! | Azure/AzureCacheForRedis#17: idle connections are cut | `renewal::idle_connections_may_be_cut_between_extensions` |
//! | mike-marcacci/node-redlock#296: validity from the first attempt | `wait::a_lease_counts_from_the_attempt_that_won_it` |
//! | kvz/cronlock#11: a crash blocks for long | `wait::a_waiter_takes_a_dead_holders_lock_when_its_lease_is_over` |
//! | langgenius/dify#32297: the release hides the job's failure | `lease_loss::a_lost_lock_does_not_hide_the_jobs_own_failure` |
//! | taskforcesh/bullmq#3351: missing rights show at the renewal | `acl::*` |
//! | Openpanel-dev/groupmq#16: NOSCRIPT for hours | `renewal::flushed_scripts_are_sent_again_unseen` |
//! | StackExchange/StackExchange.Redis#2264: READONLY | `faults::a_demoted_primary_is_unavailable_and_waited_for` |
//! | redis/redis#4561: LOADING | `faults::a_redis_that_loads_its_data_is_unavailable_and_waited_for` |
//! | redis/redis#8623: OOM | `faults::a_full_redis_is_never_called_busy`, `renewal::a_holder_goes_on_under_memory_pressure` |
//! | mike-marcacci/node-redlock#107: the key is no lock | `faults::a_list_at_the_key_is_76_at_once_and_kept` |
//! | laravel/horizon#1738, ShedLock#65: no expiry, sub-second leases | `acquire::a_lock_of_another_tool_is_busy_and_is_left_alone`, `errors::*` |
//! | redis-rs#517 and others: characters of passwords | `passwords::passwords_with_any_character_work`, `errors::a_url_that_cannot_be_read_is_64_and_shows_no_password` |
//! | ioredis#1211, lettuce#1379: start-up commands need rights | `acl::the_rights_of_the_hint_are_enough_for_the_whole_life_of_a_lock` |
//! | discourse/discourse#17886: a storm of polls | `contention::a_crowd_of_waiters_gets_through_without_a_storm_of_requests` |
//! | ClusterLabs/resource-agents#1400: passwords in logs | `output::no_message_shows_a_password` |
//! | etcd-io/etcd#10840: the wrapper takes variables away | here |
//! | hashicorp/consul#776, BOINC/boinc#6225: options of the job are eaten | `cli::everything_from_the_first_non_option_on_belongs_to_the_job` |
//! | jamesrwhite/minicron#276: busy looks like failure or success | `exit_status::a_busy_lock_can_be_told_from_a_job_that_exits_75` |
//! | etcd-io/etcd#4740, #12138: Redis down looks like busy | `faults::*`, and here |
//! | dada-mail#969: mails every minute | `output::success_prints_nothing_of_ours` |

use std::time::Duration;

use crate::support::jobs::{KEY, on_a_short_lease, sh};
use crate::support::server::free_port;
use crate::support::{Run, Server};

/// etcd-io/etcd#10840.
#[test]
fn the_jobs_environment_is_the_callers_and_the_documented_additions() {
    let server = Server::start();
    let run = |args: &[&str]| {
        Run::of(args[0], &args[1..])
            .env("REDLOCK_RUN_URL", server.url())
            .env("REDIS_URL", "redis://app")
            .env("ODD", "a\nb=c")
            .env("EMPTY", "")
            .finish()
    };
    let direct = run(&["env", "-0"]);
    let wrapped = run(&["redlock-run", "--key", KEY, "env", "-0"]);
    let lines = |outcome: &crate::support::Outcome| -> Vec<String> {
        let text = outcome.stdout_text();
        let mark = |entry: &&str| !entry.is_empty() && !entry.starts_with("TEST_RUN_MARK=");
        text.split('\0').filter(mark).map(String::from).collect()
    };
    let (before, after) = (lines(&direct), lines(&wrapped));
    for entry in &before {
        assert!(after.contains(entry), "{entry:?} is gone");
    }
    let mut added: Vec<&str> = after
        .iter()
        .filter(|entry| !before.contains(entry))
        .filter_map(|entry| entry.split_once('=').map(|(name, _)| name))
        .collect();
    added.sort_unstable();
    let wanted = ["FENCING_TOKEN", "HELD", "KEY", "LEASE_MS", "TOKEN"];
    assert_eq!(added, wanted.map(|name| format!("REDLOCK_RUN_{name}")));
    direct.any_output().expect_status(0);
    wrapped.any_output().expect_status(0);
}

/// viafintech/cronlocker#10: users need to fail, to skip in silence, and to tell apart.
#[test]
fn down_busy_and_failed_are_three_different_statuses() {
    let server = Server::start();
    let port = free_port();
    sh(&server, &["-n"], "exit 1").finish().expect_status(1);
    server.redis.tell(&["SET", KEY, "foreign"]);
    sh(&server, &["-n"], "exit 1").finish().any_output().expect_status(75);
    let url = format!("redis://127.0.0.1:{port}");
    sh(&server, &["-n", "--url", &url], "exit 1").finish().any_output().expect_status(69);
    // A skip that is fine is no licence to hide a Redis that is down.
    sh(&server, &["-n", "-E", "0", "--url", &url], "exit 1")
        .finish()
        .stderr_contains("cannot reach Redis")
        .expect_status(69);
}

/// zenstruck/schedule-bundle#90: the default gives mutual exclusion only, at once.
#[test]
fn two_runs_one_after_the_other_both_run() {
    let server = Server::start();
    for _ in 0..2 {
        sh(&server, &["-n"], "echo ran").finish().stdout("ran\n").expect_status(0);
    }
}

/// lukas-krecan/ShedLock#65: leases below a second were cut to 0.
#[test]
fn leases_below_a_second_work() {
    let server = Server::start();
    let outcome = on_a_short_lease(Duration::from_millis(300), || {
        sh(&server, &["--ttl", "900ms"], "sleep 2.2; echo ran").finish()
    });
    outcome.stdout("ran\n").within(Duration::from_secs(15)).expect_status(0);
    assert!(!server.redis.exists(KEY));
}

/// ionelmc/python-redis-lock#59 and redisson#1098: helper keys in other slots.
#[test]
fn keys_with_braces_are_keys_like_others() {
    let server = Server::start();
    for key in ["{a}b", "a}b", "{}x", "a{}b", "{job}"] {
        Run::on(&server, ["-n", "--key", key, "true"]).finish().expect_status(0);
        assert!(!server.redis.exists(key));
    }
}
