{{/* The template of the gateway's pods, the same for every kind of workload. */}}
{{- define "kube-fanout.pod" -}}
{{- $name := include "kube-fanout.fullname" . -}}
{{- /* These settings are switches: gateways take them over while they run. */ -}}
{{- $values := deepCopy .Values -}}
{{- $_ := set $values "config" (omit .Values.config "relayPercent" "serving") -}}
{{- $files := include "kube-fanout.files" (dict "Values" $values "Chart" .Chart "Release" .Release "Capabilities" .Capabilities) -}}
metadata:
  labels:
    {{- include "kube-fanout.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # Most settings need a restart (docs/CONFIGURATION.md).
    checksum/configuration: {{ $files | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "kube-fanout.serviceAccount" . | quote }}
  # The environment variables that Kubernetes sets for a Service named kube-fanout begin like the gateway's own.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "kube-fanout.gracePeriod" . }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- $security := .Values.podSecurityContext }}
  {{- if and .Values.state.enabled (eq .Values.kind "StatefulSet") }}
  {{- /* Otherwise each start would open the directory of the checkpoints to the group, and the gateway refuses that. */}}
  {{- $security = merge (dict "fsGroupChangePolicy" "OnRootMismatch") $security }}
  {{- end }}
  securityContext:
    {{- toYaml $security | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .Values.topologySpread (ne .Values.kind "DaemonSet") }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "kube-fanout.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if and .Values.state.enabled (eq .Values.kind "DaemonSet") .Values.state.hostPathImage }}
  initContainers:
    - name: state-directory
      image: {{ .Values.state.hostPathImage | quote }}
      # The kubelet makes the directory for root, and open to all.
      command: [sh, -c, "chmod 700 /var/lib/kube-fanout && chown {{ .Values.podSecurityContext.runAsUser | int64 }}:{{ .Values.podSecurityContext.runAsGroup | int64 }} /var/lib/kube-fanout"]
      securityContext:
        runAsNonRoot: false
        runAsUser: 0
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          add: [CHOWN, FOWNER]
      volumeMounts:
        - name: state
          mountPath: /var/lib/kube-fanout
  {{- end }}
  containers:
    - name: gateway
      {{- if .Values.image.digest }}
      image: {{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
      {{- else }}
      image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
      {{- end }}
      {{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      args:
        - serve
        - --config=/etc/kube-fanout/config/gateway.yaml
        {{- with .Values.extraArgs }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: https
          containerPort: 8443
          {{- if .Values.hostNetwork }}
          hostPort: 8443
          {{- else if .Values.hostPort }}
          hostPort: {{ .Values.hostPort }}
          {{- end }}
        - name: admin
          containerPort: 9090
          {{- if .Values.hostNetwork }}
          hostPort: 9090
          {{- end }}
        {{- if .Values.operators.enabled }}
        - name: operators
          containerPort: {{ .Values.operators.port }}
          {{- if .Values.hostNetwork }}
          hostPort: {{ .Values.operators.port }}
          {{- end }}
        {{- end }}
      # Listing a large resource takes a while: readiness waits for it, liveness does not.
      readinessProbe:
        httpGet:
          {{- if .Values.hostNetwork }}
          host: {{ include "kube-fanout.adminHost" . }}
          {{- end }}
          path: /readyz
          port: admin
        periodSeconds: 5
        timeoutSeconds: 2
      livenessProbe:
        httpGet:
          {{- if .Values.hostNetwork }}
          host: {{ include "kube-fanout.adminHost" . }}
          {{- end }}
          path: /livez
          port: admin
        initialDelaySeconds: 5
        periodSeconds: 10
        timeoutSeconds: 5
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        # The whole folder: the kubelet never updates a file that is mounted by subPath.
        - name: configuration
          mountPath: /etc/kube-fanout/config
          readOnly: true
        {{- if .Values.upstream.gateway.url }}
        - name: upstream-ca
          mountPath: /etc/kube-fanout/upstream-ca
          readOnly: true
        {{- else if .Values.upstream.kubeconfig.secret }}
        - name: upstream
          mountPath: /etc/kube-fanout/upstream
          readOnly: true
        {{- end }}
        - name: tls
          mountPath: /etc/kube-fanout/tls
          readOnly: true
        {{- if or .Values.clientCA.configMap .Values.clientCA.secret }}
        - name: client-ca
          mountPath: /etc/kube-fanout/client-ca
          readOnly: true
        {{- end }}
        {{- if .Values.state.enabled }}
        - name: state
          mountPath: /var/lib/kube-fanout
        {{- if .Values.state.keySecret }}
        - name: state-key
          mountPath: /etc/kube-fanout/state-key
          readOnly: true
        {{- end }}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: configuration
      configMap:
        name: {{ $name }}
    - name: tls
      secret:
        secretName: {{ include "kube-fanout.tlsSecret" . | quote }}
    {{- if .Values.upstream.gateway.url }}
    # Only the certificate: an authority's Secret holds its key as well.
    - name: upstream-ca
      secret:
        secretName: {{ .Values.upstream.gateway.caSecret | quote }}
        items:
          - key: {{ .Values.upstream.gateway.caKey | quote }}
            path: ca.crt
    {{- else if .Values.upstream.kubeconfig.secret }}
    - name: upstream
      secret:
        secretName: {{ .Values.upstream.kubeconfig.secret | quote }}
        items:
          - key: {{ .Values.upstream.kubeconfig.key | quote }}
            path: kubeconfig
    {{- end }}
    {{- if .Values.clientCA.configMap }}
    - name: client-ca
      configMap:
        name: {{ .Values.clientCA.configMap | quote }}
        items:
          - key: {{ .Values.clientCA.key | quote }}
            path: ca.crt
    {{- else if .Values.clientCA.secret }}
    - name: client-ca
      secret:
        secretName: {{ .Values.clientCA.secret | quote }}
        items:
          - key: {{ .Values.clientCA.key | quote }}
            path: ca.crt
    {{- end }}
    {{- if .Values.state.enabled }}
    {{- if eq .Values.kind "DaemonSet" }}
    - name: state
      hostPath:
        path: {{ .Values.state.hostPath | quote }}
        type: {{ ternary "DirectoryOrCreate" "Directory" (not (empty .Values.state.hostPathImage)) }}
    {{- end }}
    {{- if .Values.state.keySecret }}
    - name: state-key
      secret:
        secretName: {{ .Values.state.keySecret | quote }}
        items:
          - key: {{ .Values.state.keyName | quote }}
            path: key
    {{- end }}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}
