//! Replies by their codes, from a fake: those that a real Redis gives only in states that a test
//! cannot bring about, and those of servers that are no Redis.

use std::time::Duration;

use crate::faults::{refused, tried};
use crate::support::fake::Fake;

#[test]
fn replies_that_no_test_can_provoke_are_classed_by_their_code() {
    let table = [
        ("-OOM command not allowed when used memory > 'maxmemory'.", 69, "OOM"),
        ("-MASTERDOWN Link with MASTER is down", 69, "MASTERDOWN"),
        ("-BUSY Redis is busy running a script.", 69, "BUSY"),
        ("-TRYAGAIN Multiple keys request during rehashing of slot", 69, "TRYAGAIN"),
        ("-ERR max number of clients reached", 69, "max number of clients"),
        ("-LOADING Redis is loading the dataset in memory", 69, "LOADING"),
        // Redis 6.2 puts its own words before the code of an error inside a script.
        (
            "-ERR Error running script (call to f_1): @user_script:4: -NOREPLICAS Not enough good replicas to write.",
            69,
            "NOREPLICAS",
        ),
        ("-NOAUTH Authentication required.", 77, "authentication"),
        ("-NOPERM this user has no permissions to run the 'eval' command", 77, "eval"),
        (
            "-ERR Error running script (call to f_1): @user_script:4: @user_script: 4: The user executing the script can't run this command or subcommand",
            77,
            "refused",
        ),
        (
            "-ERR Error running script (call to f_1): @user_script:4: @user_script: 4: The user executing the script can't access at least one of the keys mentioned in the command arguments",
            77,
            "refused",
        ),
        (
            "-ERR The user executing the script can't run this command or subcommand script: f_1",
            77,
            "redlock-run: ",
        ),
        (
            "-@user_script: 6: The user executing the script can't run this command or subcommand",
            77,
            "refused",
        ),
        (
            "-DENIED Redis is running in protected mode because protected mode is enabled",
            77,
            "protected mode",
        ),
        ("-WRONGTYPE Operation against a key holding the wrong kind of value", 76, "redlock-run: "),
    ];
    for (reply, status, part) in table {
        let fake = Fake::answering(&format!("{reply}\r\n"));
        let text = tried(&fake.url(), &["-n"]);
        let lower = text.stderr_text().to_lowercase().contains(&part.to_lowercase());
        text.check(lower, part);
        refused(text, status, "");
    }
}

#[test]
fn what_is_no_redis_is_76() {
    for reply in
        ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "220 mail ready\r\n", "SSH-2.0-x\r\n"]
    {
        let fake = Fake::answering(reply);
        refused(tried(&fake.url(), &["-n"]).within(Duration::from_secs(6)), 76, "");
    }
}

#[test]
fn a_server_that_promises_an_endless_reply_costs_neither_time_nor_memory() {
    let fake = Fake::answering("$4000000000\r\nx");
    let outcome = tried(&fake.url(), &["-n"]).within(Duration::from_secs(8));
    outcome.check(!outcome.stderr_text().contains("held by"), "never busy");
    let failed = outcome.stderr_text().starts_with("redlock-run: ");
    outcome.check(failed, "a line of ours");
}

#[test]
fn text_of_a_server_is_escaped_and_cut() {
    let reply = format!("-OOM \u{1b}[31m{}\r\n", "long".repeat(500));
    let fake = Fake::answering(&reply);
    let outcome = tried(&fake.url(), &["-n"]);
    let text = outcome.stderr_text();
    outcome.check(!text.contains('\u{1b}'), "no escape character");
    outcome.check(text.len() < 1000, "a bounded line");
    refused(outcome, 69, "OOM");
}
