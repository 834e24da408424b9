{{/* The gateway's configuration: what values say under config, and what follows from other values. */}}
{{- define "kube-fanout.configuration" -}}
{{- $name := include "kube-fanout.fullname" . -}}
{{- $own := dict
    "apiVersion" "kube-fanout.dev/v1alpha1"
    "kind" "GatewayConfiguration"
    "listen" "0.0.0.0:8443"
    "adminListen" (printf "%s:9090" (include "kube-fanout.adminHost" .))
    "tlsCert" "/etc/kube-fanout/tls/tls.crt"
    "tlsKey" "/etc/kube-fanout/tls/tls.key" -}}
{{- if .Values.upstream.gateway.url -}}
{{- $_ := set $own "kubeconfig" "/etc/kube-fanout/config/upstream.kubeconfig" -}}
{{- else if .Values.upstream.kubeconfig.secret -}}
{{- $_ := set $own "kubeconfig" "/etc/kube-fanout/upstream/kubeconfig" -}}
{{- else -}}
{{- $_ := set $own "inCluster" true -}}
{{- end -}}
{{- with .Values.upstream.apiServers }}{{ $_ := set $own "apiServers" . }}{{ end -}}
{{- if .Values.operators.enabled -}}
{{- $_ := set $own "operatorListen" (printf "0.0.0.0:%d" (int .Values.operators.port)) -}}
{{- end -}}
{{- if or .Values.clientCA.configMap .Values.clientCA.secret -}}
{{- $_ := set $own "clientCaFile" "/etc/kube-fanout/client-ca/ca.crt" -}}
{{- end -}}
{{- if .Values.handover.enabled -}}
{{- $_ := set $own "handoverFrom" (printf "https://%s-peers.%s.svc:8443" $name .Release.Namespace) -}}
{{- $_ := set $own "handoverServerName" (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $_ := set $own "handoverCaFile" "/etc/kube-fanout/tls/ca.crt" -}}
{{- $_ := set $own "handoverTokenFile" "/var/run/secrets/kubernetes.io/serviceaccount/token" -}}
{{- end -}}
{{- if .Values.state.enabled -}}
{{/* A directory below the volume: the volume's own directory belongs to the group of the pod, and the gateway refuses that. */}}
{{- $_ := set $own "stateDir" (ternary "/var/lib/kube-fanout/state" "/var/lib/kube-fanout" (eq .Values.kind "StatefulSet")) -}}
{{- if .Values.state.keySecret -}}
{{- $_ := set $own "stateKeyFile" "/etc/kube-fanout/state-key/key" -}}
{{- end -}}
{{- end -}}
{{- if not (hasKey .Values.config "memoryMax") -}}
{{- with include "kube-fanout.memoryMax" . }}{{ $_ := set $own "memoryMax" . }}{{ end -}}
{{- end -}}
{{- toYaml (merge $own .Values.config) -}}
{{- end -}}

{{/* The bound of memory: that of config, or seven eighths of the container's limit; nothing without either. */}}
{{- define "kube-fanout.memoryMax" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- if hasKey .Values.config "memoryMax" -}}
{{- with .Values.config.memoryMax }}{{ ternary (. | int64 | toString) (toString .) (kindIs "float64" .) }}{{ end -}}
{{- else if $limit -}}
{{- $bytes := include "kube-fanout.bytes" $limit -}}
{{- if not $bytes -}}
{{- fail (printf "resources.limits.memory: cannot derive config.memoryMax from %v: write it like 2Gi, or set config.memoryMax" $limit) -}}
{{- end -}}
{{- $bound := div (mul (int64 $bytes) 7) 8388608 -}}
{{- if lt $bound 64 -}}
{{- fail (printf "resources.limits.memory: %v is too little: seven eighths of it become config.memoryMax, which must be at least 64Mi" $limit) -}}
{{- end -}}
{{- printf "%dMi" $bound -}}
{{- end -}}
{{- end -}}

{{/* How the other gateway is reached, with the service account's token. */}}
{{- define "kube-fanout.kubeconfig" -}}
apiVersion: v1
kind: Config
clusters:
  - name: upstream
    cluster:
      server: {{ .Values.upstream.gateway.url | quote }}
      certificate-authority: /etc/kube-fanout/upstream-ca/ca.crt
users:
  - name: gateway
    user:
      tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
contexts:
  - name: upstream
    context:
      cluster: upstream
      user: gateway
current-context: upstream
{{- end -}}

{{/* All files of the ConfigMap. */}}
{{- define "kube-fanout.files" -}}
gateway.yaml: |
  {{- include "kube-fanout.configuration" . | nindent 2 }}
{{- if .Values.upstream.gateway.url }}
upstream.kubeconfig: |
  {{- include "kube-fanout.kubeconfig" . | nindent 2 }}
{{- end }}
{{- end -}}
