# shellcheck shell=sh
# Sourced by get-redis and get-cc: install a package with whatever package manager this machine has.

# install_packages WHAT MANAGER=PACKAGES...
#
# Installs the PACKAGES (separated by spaces) listed for the first MANAGER found here. Quiet when
# that works; else WHAT, the reason and the one thing to type go to stderr and the status is 1.
install_packages() {
    what=$1
    shift
    for choice in "$@"; do
        manager=${choice%%=*}
        packages=${choice#*=}
        command -v "$manager" >/dev/null 2>&1 || continue
        case $manager in
            apt-get) command="apt-get install -y --no-install-recommends $packages" ;;
            dnf) command="dnf install -y $packages" ;;
            apk) command="apk add $packages" ;;
            pacman) command="pacman -Sy --noconfirm --needed $packages" ;;
            brew) command="brew install $packages" ;;
            *) continue ;;
        esac
        if [ "$manager" = brew ]; then
            as_root='' # Homebrew refuses to run as root
        elif [ "$(id -u)" -eq 0 ]; then
            as_root=''
        elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
            as_root='sudo -n'
        else
            [ "$manager" != apt-get ] || command="apt-get update && $command"
            echo "${0##*/}: $what is missing and only root can install it; type as root: $command" >&2
            return 1
        fi
        echo "${0##*/}: $what is missing; installing it: $command" >&2
        # Split on purpose: $as_root and $command are words made above.
        # shellcheck disable=SC2086
        if log=$(
            if [ "$manager" = apt-get ]; then
                # env, since sudo does not pass the caller's variables on. A failed update may
                # still leave lists that are good enough, so the installation decides.
                $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
                $as_root env DEBIAN_FRONTEND=noninteractive $command
            else
                $as_root $command
            fi 2>&1 </dev/null
        ); then
            return 0
        fi
        printf '%s\n' "$log" >&2
        echo "${0##*/}: '$command' failed (its output is above); install $what by hand, then try again" >&2
        return 1
    done
    echo "${0##*/}: $what is missing and no known package manager is here; install $what, then try again" >&2
    return 1
}
