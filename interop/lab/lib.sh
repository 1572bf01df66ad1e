# shellcheck shell=bash disable=SC2034
# Settings and helpers shared by every lab command (sourced, never run).
# Every LAB_* value can be overridden from the environment; see README.md.
LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin

: "${LAB_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/rdma-lab}" # images and run state
: "${LAB_KERNEL:=linux-image-amd64}"  # Debian kernel package for the guest
: "${LAB_SUITE:=}"                    # Debian release of kernel and tools; empty: that of the host's apt sources
: "${LAB_NETNS:=rdmalab}"             # network namespace created on the host
: "${LAB_ID:=1}"                      # guest number, 1..99
: "${LAB_NET4:=192.168.77}"           # RoCE /24: host .1, guest .1+LAB_ID
: "${LAB_NET6:=fd77:}"                # RoCE /64: host ::1, guest ::1+LAB_ID
: "${LAB_CTL4:=192.168.78}"           # iWARP + control /24, same numbering
: "${LAB_CTL6:=fd78:}"                # iWARP + control /64, same numbering
: "${LAB_MTU:=9000}"                  # IP MTU of both networks
: "${LAB_MEM:=768}"                   # guest memory, MiB
: "${LAB_SMP:=2}"                     # guest CPUs
: "${LAB_NICE:=-10}"                  # the guest's priority, -20 (highest) to 19
: "${LAB_ACCEL:=tcg,thread=multi}"    # qemu -accel
: "${LAB_CPU:=max,-erms}"             # qemu -cpu; erms is off because "rep movsb" is emulated byte by byte
: "${LAB_BOOT_TIMEOUT:=180}"          # seconds to wait for the guest

LAB_IMAGE=$LAB_CACHE/image-${LAB_SUITE:+$LAB_SUITE-}$LAB_KERNEL
LAB_STATE=$LAB_CACHE/run/$LAB_NETNS
LAB_GUEST=$LAB_STATE/$LAB_ID
LAB_HOST4=$LAB_NET4.1
LAB_GUEST4=$LAB_NET4.$((LAB_ID + 1))
LAB_GUESTCTL4=$LAB_CTL4.$((LAB_ID + 1))
LAB_HEX=$(printf %x $((LAB_ID + 1)))

say() { printf 'lab: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
[ "$(id -u)" = 0 ] || die "must run as root"
[[ $LAB_ID =~ ^[1-9][0-9]?$ ]] || die "LAB_ID must be 1..99"

# Succeeds while the recorded pid belongs to the qemu of this LAB_ID.
guest_alive() {
  local pid
  pid=$(cat "$LAB_GUEST/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$LAB_GUEST/pid"
}

# ssh to the guest over the control network, through one shared connection.
guest_ssh() {
  ip netns exec "$LAB_NETNS" ssh -F none -i "$LAB_CACHE/key" -S "$LAB_GUEST/ssh" \
    -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o LogLevel=ERROR -o ConnectTimeout=10 "$@"
}

# Quotes its arguments for the guest's POSIX shell.
quote() { local a; for a; do printf "'%s' " "${a//\'/\'\\\'\'}"; done; }
