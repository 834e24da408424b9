{{/* Short enough for the suffixes of Services and Issuers. */}}
{{- define "kube-fanout.short" -}}
{{- regexReplaceAll "-+$" (trunc 50 .) "" -}}
{{- end -}}

{{- define "kube-fanout.name" -}}
{{- include "kube-fanout.short" (default .Chart.Name .Values.nameOverride) -}}
{{- end -}}

{{- define "kube-fanout.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- include "kube-fanout.short" .Values.fullnameOverride -}}
{{- else if contains (include "kube-fanout.name" .) .Release.Name -}}
{{- include "kube-fanout.short" .Release.Name -}}
{{- else -}}
{{- include "kube-fanout.short" (printf "%s-%s" .Release.Name (include "kube-fanout.name" .)) -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.identity" -}}
app.kubernetes.io/name: {{ include "kube-fanout.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kube-fanout.labels" -}}
{{ include "kube-fanout.identity" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kube-fanout
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The same, with labels from a value, which may replace them: (dict "context" . "labels" …). */}}
{{- define "kube-fanout.labelsWith" -}}
{{- merge (deepCopy .labels) (include "kube-fanout.labels" .context | fromYaml) | toYaml -}}
{{- end -}}

{{/* The labels of pods, without those that change with a version: they are immutable in a workload. */}}
{{- define "kube-fanout.selector" -}}
{{ include "kube-fanout.identity" . }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "kube-fanout.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kube-fanout.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: is needed if serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.tlsSecret" -}}
{{- default (printf "%s-tls" (include "kube-fanout.fullname" .)) .Values.tls.secretName -}}
{{- end -}}

{{/* On the node's network, metrics without authentication would be open to everyone who reaches the node. */}}
{{- define "kube-fanout.adminHost" -}}
{{- ternary "127.0.0.1" "0.0.0.0" .Values.hostNetwork -}}
{{- end -}}

{{/* Milliseconds of a duration such as 75s or 1m30s. */}}
{{- define "kube-fanout.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(h|ms|m|s)" (toString .) -1 -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Seconds of the drain, rounded up. */}}
{{- define "kube-fanout.drainSeconds" -}}
{{- $drain := include "kube-fanout.milliseconds" (default "25s" .Values.config.drainTimeout) | int64 -}}
{{- div (add $drain 999) 1000 -}}
{{- end -}}

{{/* After the drain, checkpoints may take 20 s and the audit log 5 s (src/gateway/src/lib.rs). */}}
{{- define "kube-fanout.gracePeriod" -}}
{{- $drain := include "kube-fanout.drainSeconds" . | int64 -}}
{{- $given := int64 .Values.terminationGracePeriodSeconds -}}
{{- $writes := or .Values.state.enabled .Values.config.auditLogPath -}}
{{- if and $given $writes (lt $given (add $drain 25)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d must be at least config.drainTimeout (%d s) and 25 s more, otherwise the last checkpoints or audit events are not written" $given $drain) -}}
{{- else if and $given (le $given $drain) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d must be more than config.drainTimeout (%d s), otherwise the drain is cut off" $given $drain) -}}
{{- end -}}
{{- default (add $drain (ternary 30 15 (not (empty $writes)))) $given -}}
{{- end -}}

{{/* Bytes of a Kubernetes quantity such as 2Gi; nothing if it has another form. */}}
{{- define "kube-fanout.bytes" -}}
{{- $text := ternary (. | int64 | toString) (toString .) (kindIs "float64" .) -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([KMGT]i|[kMGT])?$" $text -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text)) | int64 -}}
{{- end -}}
{{- end -}}

{{/* Thousandths of a processor, of a quantity such as 500m or 2; nothing if it has another form. */}}
{{- define "kube-fanout.millicores" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[0-9]+m$" $text -}}
{{- trimSuffix "m" $text -}}
{{- else if regexMatch "^[0-9]+([.][0-9]+)?$" $text -}}
{{- mulf (float64 $text) 1000 | int64 -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a length in the gateway's configuration, such as 256Mi. */}}
{{- define "kube-fanout.length" -}}
{{- include "kube-fanout.bytes" (ternary . (toString . | replace " " "" | trimSuffix "B") (kindIs "float64" .)) -}}
{{- end -}}
