#!/usr/bin/env bash
# The status page in Chromium, in every state that it has to show, as a desktop, a phone and a dark desktop: no errors, no scrolling sideways,
# nothing found by axe-core; and what it does with keys, filters, lost connections and hostile names.
#
#   run.sh          the page with the documents of states.mjs
#   run.sh URL NAME only the page of a gateway that runs, such as http://127.0.0.1:9090/status of './kube-fanout demo'; NAME is for the files
#
# Run by hand after changes of src/serving/src/admin/status/page.html. Installs Chromium (from Debian) and npm's axe-core and puppeteer-core if they are
# missing. Writes screenshots to target/status. Exit code: 0 all is well, 1 something was found, 3 setup failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}/status")
unfit() { printf 'run.sh: %s\n' "$*" >&2; exit 3; }

mkdir -p "$work"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  apt-get install -y -qq --no-install-recommends chromium >&2 || unfit "Chromium is missing: install the package chromium"
  chromium=$(command -v chromium) || unfit "Chromium is missing"
fi
command -v npm >/dev/null || unfit "npm is missing: .ci/setup.sh test installs it"
cp "$here"/package.json "$here"/*.mjs "$work/"
(cd "$work" && { [ -d node_modules/axe-core ] || npm install --no-audit --no-fund --ignore-scripts --silent; }) >&2 || unfit "npm install failed"
CHROMIUM=$chromium exec node "$work/check.mjs" "$here/../../src/serving/src/admin/status/page.html" "$work" "$@"
