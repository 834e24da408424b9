#!/usr/bin/env bash
# A certificate for gateways from the cluster's own authority, with the names of the API server: clients then trust both ends alike.
#
#   certificate.sh [NAMESPACE]             requests and approves it, and writes the Secret kube-fanout-tls, unless there is one
#   certificate.sh --replace [NAMESPACE]   the same, whatever is in that Secret
#   certificate.sh --print [NAMESPACE]     prints only the request
#
# The signer kubernetes.io/kubelet-serving accepts any names for a subject that looks like a node's. kubeadm's cluster authority signs for
# it; on clusters where another authority does, or none, use a bundle (docs/HOWTO.md). Needs openssl, kubectl, and the rights to create and
# approve certificate requests: who has them can have a certificate for the API server's name. Repeat it
# with --replace before the certificate expires.
set -euo pipefail

task=create
case "${1:-}" in
    --print | --replace)
        task=${1#--}
        shift
        ;;
esac
namespace=${1:-kube-fanout}
if [ "$task" = create ] && [ -n "$(kubectl -n "$namespace" get secret kube-fanout-tls --ignore-not-found -o name)" ]; then
    echo "certificate.sh: the Secret kube-fanout-tls exists: give --replace to overwrite it" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names=DNS:kubernetes.default.svc,DNS:kubernetes.default,DNS:kubernetes.default.svc.cluster.local
for service in kube-fanout kube-fanout-api; do
    names=$names,DNS:$service.$namespace,DNS:$service.$namespace.svc,DNS:$service.$namespace.svc.cluster.local
done
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/tls.key" -out "$work/tls.csr" \
    -subj /O=system:nodes/CN=system:node:kube-fanout -addext "subjectAltName=$names" 2>/dev/null
request=kube-fanout-$(date +%s)
cat >"$work/request.yaml" <<YAML
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata:
  name: $request
spec:
  signerName: kubernetes.io/kubelet-serving
  usages: [digital signature, server auth]
  request: $(base64 -w0 "$work/tls.csr")
YAML
if [ "$task" = print ]; then
    cat "$work/request.yaml"
    exit
fi

kubectl create -f "$work/request.yaml"
kubectl certificate approve "$request"
if ! kubectl wait --for=jsonpath='{.status.certificate}' --timeout=60s "csr/$request"; then
    echo "certificate.sh: nobody has signed it in 60 s: use a bundle (docs/HOWTO.md)" >&2
    exit 1
fi
kubectl get csr "$request" -o jsonpath='{.status.certificate}' | base64 -d >"$work/tls.crt"
# The authority must be the one that pods trust.
kubectl -n "$namespace" get configmap kube-root-ca.crt -o jsonpath='{.data.ca\.crt}' >"$work/ca.crt"
if ! openssl verify -CAfile "$work/ca.crt" -untrusted "$work/tls.crt" "$work/tls.crt" >/dev/null; then
    echo "certificate.sh: the signer is not an authority that pods trust: use a bundle (docs/HOWTO.md)" >&2
    exit 1
fi
kubectl -n "$namespace" create secret tls kube-fanout-tls --cert "$work/tls.crt" --key "$work/tls.key" --dry-run=client -o yaml | kubectl apply -f -
