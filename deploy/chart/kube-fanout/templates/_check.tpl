{{/* What the schema cannot say: values that contradict each other. Each message begins with the value to change. */}}
{{- define "kube-fanout.check" -}}
{{- include "kube-fanout.checkNames" . -}}
{{- include "kube-fanout.checkKind" . -}}
{{- include "kube-fanout.checkUpstream" . -}}
{{- include "kube-fanout.checkBounds" . -}}
{{- include "kube-fanout.checkTimes" . -}}
{{- include "kube-fanout.checkNeeds" . -}}
{{- include "kube-fanout.checkExtras" . -}}
{{- include "kube-fanout.checkResources" . -}}
{{- include "kube-fanout.checkIdentity" . -}}
{{- include "kube-fanout.checkNetwork" . -}}
{{- include "kube-fanout.checkAutoscaling" . -}}
{{- if .Values.rbac.create -}}
{{- include "kube-fanout.checkCached" . -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkNames" -}}
{{- $name := include "kube-fanout.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: is needed with a release of this name, because %s cannot be the name of a Service: a letter first, then letters, digits and -" $name) -}}
{{- end -}}
{{- range $key, $_ := include "kube-fanout.selector" . | fromYaml -}}
{{- if hasKey $.Values.podLabels $key -}}
{{- fail (printf "podLabels: %s is what Services and the workload select pods by" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.podAnnotations "checksum/configuration" -}}
{{- fail "podAnnotations: checksum/configuration is the chart's own" -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkKind" -}}
{{- if and .Values.podDisruptionBudget.enabled (regexMatch "^0+%?$" (toString .Values.podDisruptionBudget.maxUnavailable)) -}}
{{- fail "podDisruptionBudget.maxUnavailable: must be more than 0, otherwise no node can be drained" -}}
{{- end -}}
{{- if and (eq .Values.kind "StatefulSet") (not .Values.state.enabled) -}}
{{- fail "state.enabled: must be true with kind: StatefulSet, whose only purpose is a volume for each replica; otherwise use kind: Deployment" -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") .Values.state.enabled -}}
{{- fail "state.enabled: needs kind: StatefulSet or kind: DaemonSet; pods of a Deployment do not find the volume of their predecessor again (handover.enabled needs no volume)" -}}
{{- end -}}
{{- if and (ne .Values.kind "DaemonSet") (or .Values.hostPort .Values.hostNetwork) -}}
{{- fail (printf "%s: is for kind: DaemonSet" (ternary "hostNetwork" "hostPort" .Values.hostNetwork)) -}}
{{- end -}}
{{- if and .Values.hostPort .Values.hostNetwork -}}
{{- fail "hostPort: is not needed with hostNetwork, which opens port 8443 of the node" -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkUpstream" -}}
{{- $up := .Values.upstream -}}
{{- if and $up.gateway.url (not $up.gateway.caSecret) -}}
{{- fail "upstream.gateway.caSecret: is needed with upstream.gateway.url: the Secret with the authority of its certificate" -}}
{{- end -}}
{{- if and $up.gateway.url (or $up.kubeconfig.secret $up.apiServers) -}}
{{- fail "upstream.gateway.url: excludes upstream.kubeconfig.secret and upstream.apiServers" -}}
{{- end -}}
{{- if and $up.kubeconfig.secret .Values.handover.enabled -}}
{{- fail "handover.enabled: is not possible with upstream.kubeconfig.secret: the token of the service account is not valid in the other cluster" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) (eq (include "kube-fanout.tlsSecret" .) (printf "%s-ca" (include "kube-fanout.fullname" .))) -}}
{{- fail (printf "tls.secretName: %s is the Secret of the gateway's own authority" .Values.tls.secretName) -}}
{{- end -}}
{{- with .Values.tls.certManager -}}
{{- if and (or .issuerRef.name .dnsNames .ipAddresses) (not .enabled) -}}
{{- fail "tls.certManager.enabled: must be true if tls.certManager.issuerRef.name, dnsNames or ipAddresses are given" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkTimes" -}}
{{- $drain := include "kube-fanout.milliseconds" (default "25s" .Values.config.drainTimeout) | int64 -}}
{{- $delay := include "kube-fanout.milliseconds" (default "0s" .Values.config.drainDelay) | int64 -}}
{{- $rebalance := include "kube-fanout.milliseconds" (default "0s" .Values.config.rebalanceInterval) | int64 -}}
{{- if and $rebalance (not .Values.handover.enabled) -}}
{{- fail "config.rebalanceInterval: needs handover.enabled, by which replicas find each other" -}}
{{- end -}}
{{- if gt $delay $drain -}}
{{- fail (printf "config.drainDelay: %s must not be longer than config.drainTimeout (%s), of which it is a part" .Values.config.drainDelay (default "25s" .Values.config.drainTimeout)) -}}
{{- end -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- $bound := .Values.config.memoryMax -}}
{{- if and $limit $bound -}}
{{- $bytes := include "kube-fanout.bytes" $limit -}}
{{- if and $bytes (gt (mul (include "kube-fanout.length" $bound | int64) 10) (mul (int64 $bytes) 9)) -}}
{{- fail (printf "config.memoryMax: %v must be at most nine tenths of resources.limits.memory (%v), otherwise the container is killed before the gateway gives memory back" $bound $limit) -}}
{{- end -}}
{{- end -}}
{{- if .Values.state.enabled -}}
{{- $size := include "kube-fanout.bytes" .Values.state.size -}}
{{- $memory := include "kube-fanout.memoryMax" . -}}
{{- $state := "8Gi" -}}
{{- if $memory -}}
{{- $state = min 8589934592 (mul 2 (include "kube-fanout.length" $memory | int64)) -}}
{{- end -}}
{{- if and (eq .Values.kind "StatefulSet") $size (gt (mul 2 (include "kube-fanout.bytes" $state | int64)) (int64 $size)) -}}
{{- fail (printf "state.size: %v must be at least four times config.memoryMax, or 16Gi: a checkpoint is written beside the previous one" .Values.state.size) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings that the gateway refuses without another one. */}}
{{- define "kube-fanout.checkNeeds" -}}
{{- if and .Values.config.auditPolicyFile (not .Values.config.auditLogPath) -}}
{{- fail "config.auditLogPath: is needed with config.auditPolicyFile" -}}
{{- end -}}
{{- if and .Values.config.auditLogPath (not .Values.config.auditPolicyFile) -}}
{{- fail "config.auditPolicyFile: is needed with config.auditLogPath: without a policy nothing is audited" -}}
{{- end -}}
{{- if and .Values.config.tokenAudiences (eq (default "self-check" .Values.config.auth) "self-check") -}}
{{- fail "config.tokenAudiences: needs config.auth: review or rbac" -}}
{{- end -}}
{{- if and .Values.config.requestheaderAllowedNames (not .Values.config.requestheaderClientCaFile) -}}
{{- fail "config.requestheaderAllowedNames: needs config.requestheaderClientCaFile" -}}
{{- end -}}
{{- if and (hasKey .Values.config "stateExclude") (not .Values.state.enabled) -}}
{{- fail "config.stateExclude: needs state.enabled" -}}
{{- end -}}
{{- range $name, $replacement := include "kube-fanout.removed" . | fromYaml -}}
{{- if hasKey $.Values.config $name -}}
{{- fail (printf "config.%s: was removed: %s" $name $replacement) -}}
{{- end -}}
{{- end -}}
{{- range .Values.config.pinResources -}}
{{- $builtIn := regexMatch "^[^.]+([.](apps|batch|autoscaling|policy|(admissionregistration|apiextensions|apiregistration|certificates|coordination|discovery|events|flowcontrol[.]apiserver|networking|node|rbac[.]authorization|resource|scheduling|storage)[.]k8s[.]io))?$" . -}}
{{- if not (or $builtIn (regexMatch "^[^.]+[.]v[0-9]+((alpha|beta)[0-9]+)?([.]|$)" .)) -}}
{{- fail (printf "config.pinResources: write %s with its version, like widgets.v1.example.com" .) -}}
{{- end -}}
{{- if regexMatch "^events([.]v[0-9]+((alpha|beta)[0-9]+)?)?([.]events[.]k8s[.]io)?$" . -}}
{{- fail (printf "config.pinResources: %s: events are never cached" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A flag, or a variable, overrides the file. So it must not be a setting that other objects or checks are derived from. */}}
{{- define "kube-fanout.checkExtras" -}}
{{- $derived := dict
    "auth" "auth"
    "audit-log-path" "auditLogPath"
    "drain-delay" "drainDelay"
    "drain-timeout" "drainTimeout"
    "memory-max" "memoryMax"
    "pin-resources" "pinResources" -}}
{{- range $flag := .Values.extraArgs -}}
{{- if regexMatch "^--config(=|$)" $flag -}}
{{- fail (printf "extraArgs: %s: the chart has given --config already" $flag) -}}
{{- end -}}
{{- range $name, $setting := $derived -}}
{{- if regexMatch (printf "^--%s(=|$)" $name) $flag -}}
{{- fail (printf "extraArgs: %s: set config.%s instead, because the chart derives other fields from it" $flag $setting) -}}
{{- end -}}
{{- end -}}
{{- range $name, $port := dict "listen" "8443" "admin-listen" "9090" -}}
{{- if and (regexMatch (printf "^--%s(=|$)" $name) $flag) (not (hasSuffix (printf ":%s" $port) $flag)) -}}
{{- fail (printf "extraArgs: %s: must have the port %s, which Services and probes use" $flag $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $variable := .Values.extraEnv -}}
{{- range $name, $setting := $derived -}}
{{- if eq $variable.name (printf "KUBE_FANOUT_%s" ($name | replace "-" "_" | upper)) -}}
{{- fail (printf "extraEnv: %s: set config.%s instead, because the chart derives other fields from it" $variable.name $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkResources" -}}
{{- range $name, $measure := dict "cpu" "kube-fanout.millicores" "memory" "kube-fanout.bytes" -}}
{{- $request := dig "requests" $name "" $.Values.resources -}}
{{- $limit := dig "limits" $name "" $.Values.resources -}}
{{- if and $request $limit -}}
{{- $requested := include $measure $request -}}
{{- $allowed := include $measure $limit -}}
{{- if and $requested $allowed (gt (int64 $requested) (int64 $allowed)) -}}
{{- fail (printf "resources.requests.%s: %v must not be more than resources.limits.%s (%v)" $name $request $name $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkIdentity" -}}
{{- $certificates := or .Values.clientCA.configMap .Values.clientCA.secret .Values.config.requestheaderClientCaFile -}}
{{- if and .Values.clientCA.configMap .Values.clientCA.secret -}}
{{- fail "clientCA.configMap: excludes clientCA.secret" -}}
{{- end -}}
{{- if and $certificates .Values.rbac.create (not .Values.rbac.impersonation.enabled) -}}
{{- fail "rbac.impersonation.enabled: must be true for callers with client certificates or behind a front proxy (clientCA, config.requestheaderClientCaFile); read docs/SECURITY.md first" -}}
{{- end -}}
{{- if and (eq (default "self-check" .Values.config.auth) "rbac") .Values.rbac.create (not .Values.rbac.watchRoles) -}}
{{- fail "rbac.watchRoles: must be true with config.auth: rbac, which decides by roles and bindings" -}}
{{- end -}}
{{- if and .Values.state.enabled (eq .Values.kind "DaemonSet") .Values.state.hostPathImage (not (and .Values.podSecurityContext.runAsUser .Values.podSecurityContext.runAsGroup)) -}}
{{- fail "podSecurityContext.runAsUser: is needed with state.hostPathImage, and so is runAsGroup: the directory is given to them" -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkNetwork" -}}
{{- if and .Values.hostNetwork .Values.networkPolicy.enabled -}}
{{- fail "networkPolicy.enabled: has no effect with hostNetwork" -}}
{{- end -}}
{{- if and .Values.hostNetwork .Values.podMonitor.enabled -}}
{{- fail "podMonitor.enabled: with hostNetwork the metrics are on 127.0.0.1 of each node only" -}}
{{- end -}}
{{- if and (hasPrefix "PreferSame" .Values.service.trafficDistribution) (semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "service.trafficDistribution: %s needs Kubernetes 1.34; use PreferClose" .Values.service.trafficDistribution) -}}
{{- end -}}
{{- if has (int .Values.operators.port) (list 8443 9090) -}}
{{- fail (printf "operators.port: %d is taken by the port for clients or for metrics" (int .Values.operators.port)) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.podMonitor.enabled (not .Values.networkPolicy.monitoring) -}}
{{- fail "networkPolicy.monitoring: must name Prometheus with podMonitor.enabled, otherwise metrics cannot be read" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.operators.enabled (not .Values.networkPolicy.operators) -}}
{{- fail "networkPolicy.operators: must name who may connect to operators.port, otherwise nobody can" -}}
{{- end -}}
{{- if and .Values.service.externalTrafficPolicy (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.externalTrafficPolicy: needs service.type: NodePort or LoadBalancer" -}}
{{- end -}}
{{- if and .Values.service.loadBalancerSourceRanges (ne .Values.service.type "LoadBalancer") -}}
{{- fail "service.loadBalancerSourceRanges: needs service.type: LoadBalancer" -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.nodePort: needs service.type: NodePort or LoadBalancer" -}}
{{- end -}}
{{- end -}}

{{- define "kube-fanout.checkAutoscaling" -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if eq $.Values.kind "DaemonSet" -}}
{{- fail "autoscaling.enabled: a DaemonSet has one replica on each node" -}}
{{- end -}}
{{- if lt (int .maxReplicas) (int .minReplicas) -}}
{{- fail (printf "autoscaling.maxReplicas: %d must be at least autoscaling.minReplicas (%d)" (int .maxReplicas) (int .minReplicas)) -}}
{{- end -}}
{{- if not (or .targetCPUUtilizationPercentage .targetWatchesPerReplica) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage: this or autoscaling.targetWatchesPerReplica must be more than 0" -}}
{{- end -}}
{{- if and .targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" $.Values.resources)) -}}
{{- fail "resources.requests.cpu: is needed with autoscaling.targetCPUUtilizationPercentage, which is a percentage of it" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The list that the ClusterRole is made from. A mistake there would be silent: a resource that may not be read is forwarded. */}}
{{- define "kube-fanout.checkCached" -}}
{{- $core := list "configmaps" "endpoints" "limitranges" "namespaces" "nodes" "persistentvolumeclaims" "persistentvolumes" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "secrets" "serviceaccounts" "services" -}}
{{- $listed := .Values.cachedResources -}}
{{- range $listed -}}
{{- if contains "*" . -}}
{{- if not $.Values.rbac.allowWildcards -}}
{{- fail (printf "cachedResources: %s gives the gateway the right to read resources that nobody has named, Secrets perhaps; set rbac.allowWildcards if that is wanted" .) -}}
{{- end -}}
{{- else if regexMatch "^[^.]+[.]v[0-9]+((alpha|beta)[0-9]+)?([.]|$)" . -}}
{{- fail (printf "cachedResources: write %s without its version" .) -}}
{{- else if or (eq . "events") (eq . "events.events.k8s.io") -}}
{{- fail (printf "cachedResources: %s are always forwarded, and the gateway needs no right to read them" .) -}}
{{- else if and (not (contains "." .)) (not (has . $core)) -}}
{{- fail (printf "cachedResources: the core group has no %s; write it with its group, like deployments.apps" .) -}}
{{- else if and (eq . "secrets") (not (hasKey $.Values.config "passthroughResources")) -}}
{{- fail "cachedResources: secrets are forwarded by default, and the gateway needs no right to read them; to cache them, set config.passthroughResources without them" -}}
{{- end -}}
{{- end -}}
{{- if not $.Values.rbac.allowWildcards -}}
{{- range .Values.config.pinResources -}}
{{- $plain := regexReplaceAll "^([^.]+)[.]v[0-9]+(?:(?:alpha|beta)[0-9]+)?" . "${1}" -}}
{{- if not (has $plain $listed) -}}
{{- fail (printf "config.pinResources: %s needs %s in cachedResources, otherwise the gateway may not read it" . $plain) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What replaces the settings that were removed (src/serving/src/config/removed.rs). */}}
{{- define "kube-fanout.removed" -}}
{{- $canary := "kube_fanout_watch_events_age_seconds shows how long events take, config.driftInterval whether any is missing" -}}
{{- $rotation := "logrotate does it: a new file is created within a second once the audit log was moved away" -}}
{{- $forwarded := "it is 5760, or what the limit of open files leaves" -}}
{{- dict
    "canaryNamespace" $canary
    "canaryInterval" $canary
    "auditLogMaxsize" $rotation
    "auditLogMaxbackup" $rotation
    "auditLogMaxage" $rotation
    "frameLenMax" "objects of up to 16Mi are cached, as far as config.ringBytesMax holds one"
    "coalesceDelayMax" "it is 2ms"
    "ringEventsMax" "it is 102400, the API server's own, or one for each 4Ki of config.ringBytesMax if that is more"
    "authDenyTtl" "it is 30s, or config.authAllowTtl if that is less"
    "stateInterval" "it is 1s"
    "stateBytesMax" "it is twice config.memoryMax, and 8Gi at most"
    "handoverTimeout" "it is 30s"
    "handoverBytesMax" "it is 4Gi"
    "listsWaitingMax" "it is 64 times config.listsMax"
    "listWaitMax" "it is 30s"
    "listStallMax" "it is 2s"
    "forwardedRequestsMax" $forwarded
    "forwardedWatchesMax" $forwarded
    "tunnelsMax" "it is 4096, or what the limit of open files leaves" | toYaml -}}
{{- end -}}
