# Sourced by the other scripts: the programs that the make targets need, how to find them, and how to install them.
# Looking for a program runs no other program, so that `make doctor` works on a bare machine.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# every_program VISIT: calls VISIT with each row of this table. The last column is the make target that installs the
# program, or the address where you get it. If it is empty, install the package. Valkey and Envoy are on PyPI.
every_program() {
  # Fedora has Valkey instead of Redis, with the same command: the file names either package.
  local redis=/usr/bin/redis-server
  #    name                needed by                         oldest apt-get                 dnf         brew       from
  "$1" cargo               "every target"                    1.95   ""                      ""          ""         https://rustup.rs
  "$1" "C compiler"        "every target"                    ""     build-essential         gcc         gcc        ""
  "$1" bash                test                              4      bash                    bash        bash       ""
  "$1" curl                "test test-fast"                  ""     curl                    curl        curl       ""
  "$1" openssl             "test test-fast dist"             ""     openssl                 openssl     openssl    ""
  "$1" python3             "test test-fast dist"             ""     "python3 python3-venv"  python3     python     tools
  "$1" go                  "test check-deploy check-traefik" 1.21   ""                      ""          ""         https://go.dev/dl
  "$1" redis-server        "test bench stories soak dist"    7      redis-server            "$redis"    redis      tools
  "$1" nginx               "test check-deploy"               ""     nginx                   nginx       nginx      tools
  "$1" nss_wrapper         test                              ""     libnss-wrapper          nss_wrapper ""         tools
  "$1" luac                test                              ""     lua5.1                  lua         lua        tools
  "$1" luacheck            test                              ""     lua-check               ""          luacheck   tools
  "$1" Chromium            test                              ""     chromium-headless-shell chromium    ""         tools
  "$1" Valkey              test                              ""     ""                      ""          ""         tools
  "$1" Envoy               "test check-deploy"               ""     ""                      ""          ""         tools
  "$1" valgrind            bench-instructions                ""     valgrind                valgrind    ""         bench-instructions
  "$1" node                check-deploy                      20     nodejs                  nodejs      node       ""
  "$1" prometheus          check-deploy                      ""     prometheus              ""          prometheus check-deploy
  "$1" alertmanager        check-deploy                      ""     prometheus-alertmanager ""          ""         check-deploy
  "$1" caddy               check-deploy                      ""     caddy                   caddy       caddy      check-deploy
  "$1" haproxy             check-deploy                      ""     haproxy                 haproxy     haproxy    check-deploy
  "$1" etcd                check-cluster                     ""     etcd-server             etcd        etcd       check-cluster
  "$1" c++                 fuzz                              ""     g++                     gcc-c++     gcc        ""
  "$1" rustup              dist                              ""     ""                      ""          ""         https://rustup.rs
  "$1" dpkg-deb            dist                              ""     dpkg                    dpkg        dpkg       ""
  "$1" llvm-bolt-19        dist                              ""     bolt-19                 ""          ""         ""
  "$1" docker/podman       image                             ""     podman                  podman      podman     ""
  "$1" mmdebstrap          check-dist                        ""     mmdebstrap              ""          ""         check-dist
  "$1" systemd-nspawn      check-dist                        ""     systemd-container       ""          ""         check-dist
  "$1" qemu-aarch64-static check-dist                        ""     qemu-user-static        ""          ""         check-dist
}

# locate NAME OLDEST: sets `found` to the program's version, to "yes" if the version is unknown, and to nothing if the
# program is missing or older than OLDEST.
locate() {
  local command=("$1" --version) output oldest="${2:-0.0}" alternative
  found=""
  case "$1" in
    "C compiler") read -ra command <<<"${CC:-cc} --version" ;;
    go | openssl | caddy) command=("$1" version) ;;
    nginx | haproxy | luac) command=("$1" -v) ;;
    alertmanager) command=(prometheus-alertmanager --version) ;;
    python3) command=(python3 -c 'import ensurepip, platform, venv; print(platform.python_version())') ;;
    redis-server) command=("${RATELIMITD_TEST_REDIS:-redis-server}" --version) ;;
    Envoy) command=("${RATELIMITD_TEST_ENVOY:-$tools_dir/envoy}" --version) ;;
    Valkey) command=("$tools_dir/valkey-server" --version) ;;
    "docker/podman")
      for alternative in buildah podman docker; do
        ! have "$alternative" || command=("$alternative" --version)
      done
      ;;
    # The names that tests/it/support/chromium.rs looks for. Printing its version would take a second.
    Chromium)
      for alternative in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        ! have "$alternative" || found=yes
      done
      return
      ;;
    # The folders in which tests/it/support/hosts.rs looks.
    nss_wrapper)
      for alternative in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib; do
        [ ! -e "$alternative/libnss_wrapper.so" ] || found=yes
      done
      return
      ;;
  esac
  have "${command[0]}" || return 0
  # Without its module venv, Python counts as missing. rustup installs the compiler on first use.
  output="$(RUSTUP_AUTO_INSTALL=0 "${command[@]}" 2>&1)" || [ "$1" != python3 ] || return 0
  found=yes
  if [[ "$output" =~ ([0-9]+)\.([0-9]+)[0-9.]* ]]; then
    local major="${BASH_REMATCH[1]}" minor="${BASH_REMATCH[2]}"
    found="${BASH_REMATCH[0]}"
    [[ "$oldest" == *.* ]] || oldest="$oldest.0"
    if [ "$major" -lt "${oldest%.*}" ] || { [ "$major" -eq "${oldest%.*}" ] && [ "$minor" -lt "${oldest#*.}" ]; }; then
      found=""
    fi
  fi
}

# install_command APT DNF BREW: prints how to install the packages of the column for this system, or nothing if it is
# empty.
install_command() {
  if have apt-get; then
    echo "${1:+apt-get install $1}"
  elif have dnf; then
    echo "${2:+dnf install $2}"
  elif have brew; then
    echo "${3:+brew install $3}"
  fi
}

# install_missing FROM: installs the missing programs of the make target FROM, all packages together.
install_missing() {
  local from="$1" found names=() packages=()
  add_missing() {
    local command here
    [ "$7" = "$from" ] && [ -n "$4" ] || return 0
    locate "$1" "$3"
    [ -z "$found" ] || return 0
    command="$(install_command "$4" "$5" "$6")"
    if [ -z "$command" ]; then
      say "no package of this system is known for $1: install it. Its tests WILL FAIL."
    else
      read -ra here <<<"${command#* install }"
      names+=("$1") packages+=("${here[@]}")
    fi
  }
  check_installed() {
    [[ " ${names[*]} " == *" $1 "* ]] || return 0
    locate "$1" "$3"
    [ -n "$found" ] || die "$1${3:+ $3 or newer} was installed but is not found"
  }
  every_program add_missing
  [ "${#names[@]}" -gt 0 ] || return 0
  install_packages "${packages[@]}"
  every_program check_installed
}
