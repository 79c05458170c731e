# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_redlock_run_global_optspecs
    string join \n k/key= u/url= user= password-file= connect-timeout= command-timeout= t/ttl= n/nonblock w/wait= E/conflict-exit-code= on-lost= kill-after= signal= no-fencing no-guard note= c/command= q/quiet v/verbose h/help V/version
end

function __fish_redlock_run_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_redlock_run_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_redlock_run_using_subcommand
    set -l cmd (__fish_redlock_run_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c redlock-run -n "__fish_redlock_run_needs_command" -s k -l key -d 'The lock: a Redis key, used exactly as given' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s u -l url -d 'Redis to use [default: <redis://127.0.0.1:6379/0>]' -r -f
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l user -d 'ACL user' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l password-file -d 'File that holds the password' -r -F
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l connect-timeout -d 'To reach Redis, name resolution included [default: 2s]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l command-timeout -d 'For one answer of Redis [default: 1s]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s t -l ttl -d 'How long the lock outlives its holder; renewed while the command runs [default: 30s]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s w -l wait -l timeout -d 'Wait at most this long [default: for ever]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s E -l conflict-exit-code -d 'Status when the lock is held or the wait runs out, 0 to 255 [default: 75]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l on-lost -d 'What a lost lock does to the command: stop or warn [default: stop]' -r -f -a "stop\t''
warn\t''"
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l kill-after -d 'Between our TERM and our KILL [default: 10s]' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l signal -d 'Signal sent instead of TERM when redlock-run itself ends the command' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l note -d 'Shown to whoever asks who holds the lock' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s c -l command -d 'Run STRING with /bin/sh -c instead of a command' -r
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s n -l nonblock -l nb -l nonblocking -d 'Do not wait: exit with 75 when the lock is held'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l no-fencing -d 'No fencing token: its counter is neither read nor written'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -l no-guard -d 'No guard process: the command may outlive a killed redlock-run'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s q -l quiet -d 'Say nothing when the lock is held, and nothing while waiting'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s v -l verbose -d 'Say what happens'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -s V -l version -d 'Print version'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -a "status" -d 'Show who holds a lock; exit 0 if held, 1 if free'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -a "completions" -d 'Print a completion script'
complete -c redlock-run -n "__fish_redlock_run_needs_command" -a "man" -d 'Print the manual page'
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -s u -l url -d 'Redis to use [default: <redis://127.0.0.1:6379/0>]' -r -f
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l user -d 'ACL user' -r
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l password-file -d 'File that holds the password' -r -F
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l connect-timeout -d 'To reach Redis, name resolution included [default: 2s]' -r
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l command-timeout -d 'For one answer of Redis [default: 1s]' -r
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l json -d 'One JSON object per key and line'
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -l watch -d 'Show it again every second, until interrupted'
complete -c redlock-run -n "__fish_redlock_run_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c redlock-run -n "__fish_redlock_run_using_subcommand completions" -s h -l help -d 'Print help'
complete -c redlock-run -n "__fish_redlock_run_using_subcommand man" -s h -l help -d 'Print help'
