# Sourced. Gives the crates of a copy of the tree another version. Otherwise Cargo would take what it builds from the copy, in the same build
# directory, for builds of the tree itself.
own_version() {
  local tree=$1 manifest
  for manifest in "$tree"/{.,src/*,loadtest,testkit}/Cargo.toml; do
    # Its own version, and those that it asks of the other crates.
    [ ! -f "$manifest" ] || sed -i '0,/^version = .*/s//version = "0.0.0"/; /path = /s/version = "[^"]*"/version = "0.0.0"/' "$manifest"
  done
  sed -i -E '/^name = "kube-fanout(-[a-z]+)?"$/{n;s/".*"/"0.0.0"/}' "$tree/Cargo.lock"
}
