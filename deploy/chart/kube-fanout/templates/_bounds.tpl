{{/*
The bounds of settings that are times or lengths, which the schema cannot compare; it has those of numbers. Without them the gateway would
refuse the value, in a pod that restarts again and again. deploy/check.py compares all of them with the gateway's own.
*/}}
{{- define "kube-fanout.checkBounds" -}}
{{- $times := dict
    "authAllowTtl" (list "0s" "1h")
    "reauthorizeInterval" (list "1s" "1h")
    "reauthorizeGrace" (list "0s" "24h")
    "idleResourceTimeout" (list "1s" "168h")
    "stalenessBound" (list "1s" "24h")
    "driftInterval" (list "0s" "24h")
    "ringAgeMin" (list "0s" "24h")
    "rebalanceInterval" (list "5s" "1h")
    "drainTimeout" (list "0s" "1h") -}}
{{- $lengths := dict
    "ringBytesMax" (list "64Ki" "1Ti")
    "memoryMax" (list "64Mi" "1024Ti") -}}
{{- $tables := dict "kube-fanout.milliseconds" $times "kube-fanout.length" $lengths -}}
{{- range $measure, $table := $tables -}}
{{- range $key, $bounds := $table -}}
{{- if hasKey $.Values.config $key -}}
{{- $given := get $.Values.config $key -}}
{{- $size := include $measure $given | int64 -}}
{{- /* 0 turns these off. */}}
{{- $off := and (has $key (list "rebalanceInterval" "memoryMax")) (eq $size 0) -}}
{{- if and (not $off) (or (lt $size (include $measure (first $bounds) | int64)) (gt $size (include $measure (last $bounds) | int64))) -}}
{{- fail (printf "config.%s: %v must be between %s and %s" $key $given (first $bounds) (last $bounds)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
