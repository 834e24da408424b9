//go:debug default=go1.26

// real-apiserver: a small, standalone Kubernetes API server made of the real
// parts: k8s.io/apiserver (generic registry, etcd3 storage, watch cache) for a
// table of built-in kinds, and k8s.io/apiextensions-apiserver for CRDs behind
// it. There is no admission but by policies, no defaulting, no validation past the generic
// object-meta checks and no controller: it exists to give list/watch clients
// and proxies a genuine peer on loopback.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/spf13/pflag"
	noopoteltrace "go.opentelemetry.io/otel/trace/noop"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	crdserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/admission"
	aggregated "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"realapi/openapi" // made by openapi-gen from k8s.io/api at install time
)

func run() error {
	var authn authnOptions
	var authorizationMode string
	var policies bool
	serverRun := genericoptions.NewServerRunOptions()
	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	etcd.WatchCacheSizes = []string{"events#0"} // kube-apiserver's own default
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort = net.IPv4(127, 0, 0, 1), 16443
	audit := genericoptions.NewAuditOptions()

	fs := pflag.NewFlagSet("real-apiserver", pflag.ExitOnError)
	serverRun.AddUniversalFlags(fs)
	etcd.AddFlags(fs)
	serving.AddFlags(fs)
	audit.AddFlags(fs)
	authn.addFlags(fs)
	fs.StringVar(&authorizationMode, "authorization-mode", "Users", "Users: fixed ones for tests without roles. RBAC: by stored roles, and system:masters may all.")
	fs.BoolVar(&policies, "mutating-admission-policies", false, "Serve MutatingAdmissionPolicies, and apply them.")
	fs.DurationVar(&etcd.StorageConfig.EventsHistoryWindow, "events-history-window", etcd.StorageConfig.EventsHistoryWindow, "Least history kept by each watch cache.")
	goFlags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(goFlags)
	fs.AddGoFlagSet(goFlags)
	must(fs.Parse(os.Args[1:]))

	if serverRun.AdvertiseAddress == nil {
		serverRun.AdvertiseAddress = serving.BindAddress
	}
	if err := serverRun.Complete(); err != nil {
		return err
	}
	checked := *serverRun
	checked.GoawayChance = 0 // tests may want more than the 2% that Validate allows
	for _, errs := range [][]error{checked.Validate(), etcd.Validate(), serving.Validate(), audit.Validate()} {
		if len(errs) > 0 {
			return errs[0]
		}
	}

	// Parts common to both servers.
	ks := kinds()
	if policies {
		ks = append(ks, policyKinds()...)
	}
	scheme := newScheme(ks)
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewConfig(codecs)
	if err := serverRun.ApplyTo(config); err != nil {
		return err
	}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return err
	}
	if err := authn.applyTo(config); err != nil {
		return err
	}
	rules, whenServing, err := authorization(config, authorizationMode)
	if err != nil {
		return err
	}
	config.AdmissionControl = admission.NewChainHandler()
	if policies {
		if err := admitByPolicies(config); err != nil {
			return err
		}
	}
	if err := audit.ApplyTo(config); err != nil {
		return err
	}
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	definitions := utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(func(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		defs := crdopenapi.GetOpenAPIDefinitions(ref)
		for name, def := range openapi.GetOpenAPIDefinitions(ref) {
			defs[name] = def
		}
		return defs
	})
	namer := openapinamer.NewDefinitionNamer(clientscheme.Scheme, crdserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)

	// The CRD server, at the end of the chain.
	crdConfig := *config
	crdConfig.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	crdConfig.SkipOpenAPIInstallation = true
	crdEtcd := *etcd
	crdEtcd.SkipHealthEndpoints = true
	crdEtcd.WatchCacheSizes = nil
	crdEtcd.StorageConfig.Codec = crdserver.Codecs.LegacyCodec(apiextensionsv1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
	crdEtcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1beta1.SchemeGroupVersion, schema.GroupKind{Group: apiextensionsv1beta1.GroupName})
	if err := crdEtcd.ApplyTo(&crdConfig); err != nil {
		return err
	}
	if err := genericoptions.NewAPIEnablementOptions().ApplyTo(&crdConfig, crdserver.DefaultAPIResourceConfigSource(), crdserver.Scheme); err != nil {
		return err
	}
	crds, err := (&crdserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: crdConfig},
		ExtraConfig: crdserver.ExtraConfig{
			CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(crdEtcd, crdConfig.ResourceTransformers, crdConfig.StorageObjectCountTracker),
			MasterCount:          1,
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, config.LoopbackClientConfig, noopoteltrace.NewTracerProvider()),
		},
	}).Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notfoundhandler.New(codecs, genericfilters.NoMuxAndDiscoveryIncompleteKey)))
	if err != nil {
		return err
	}

	// The built-in kinds, in front.
	factory := serverstorage.NewDefaultStorageFactory(etcd.StorageConfig, etcd.DefaultStorageMediaType, codecs,
		serverstorage.NewDefaultResourceEncodingConfig(scheme), serverstorage.NewResourceConfig(), nil)
	if err := etcd.ApplyWithStorageFactoryTo(factory, config); err != nil {
		return err
	}
	server, err := config.Complete(nil).New("real-apiserver", crds.GenericAPIServer)
	if err != nil {
		return err
	}
	groups := map[string]*genericapiserver.APIGroupInfo{}
	var order []*genericapiserver.APIGroupInfo
	for _, kd := range ks {
		info := groups[kd.gv.Group]
		if info == nil {
			i := genericapiserver.NewDefaultAPIGroupInfo(kd.gv.Group, scheme, metav1.ParameterCodec, codecs)
			info = &i
			info.PrioritizedVersions = []schema.GroupVersion{kd.gv}
			info.VersionedResourcesStorageMap[kd.gv.Version] = map[string]rest.Storage{}
			groups[kd.gv.Group], order = info, append(order, info)
		}
		storages, err := kd.storages(scheme, config.RESTOptionsGetter)
		if err != nil {
			return err
		}
		for path, st := range storages {
			info.VersionedResourcesStorageMap[kd.gv.Version][path] = st
		}
	}
	for _, g := range reviews(config.Authentication.Authenticator, authn.audiences, config.Authorization.Authorizer, rules) {
		info := genericapiserver.NewDefaultAPIGroupInfo(g.gv.Group, scheme, metav1.ParameterCodec, codecs)
		info.PrioritizedVersions = []schema.GroupVersion{g.gv}
		info.VersionedResourcesStorageMap[g.gv.Version] = g.storages
		order = append(order, &info)
	}
	if err := server.InstallLegacyAPIGroup("/api", order[0]); err != nil {
		return err
	}
	if err := server.InstallAPIGroups(order[1:]...); err != nil {
		return err
	}
	if err := discoverCRDGroups(server, crds); err != nil {
		return err
	}
	if whenServing != nil {
		if err := server.AddPostStartHook("rbac", whenServing); err != nil {
			return err
		}
	}
	return server.PrepareRun().RunWithContext(genericapiserver.SetupSignalContext())
}

// discoverCRDGroups lists the groups of CRDs under /apis, which is the
// aggregator's task in a kube-apiserver.
func discoverCRDGroups(server *genericapiserver.GenericAPIServer, crds *crdserver.CustomResourceDefinitions) error {
	add := func(name string, versions ...string) {
		slices.SortFunc(versions, func(a, b string) int { return utilversion.CompareKubeAwareVersionStrings(b, a) })
		g := metav1.APIGroup{Name: name}
		for _, v := range slices.Compact(versions) {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
		}
		g.PreferredVersion = g.Versions[0]
		server.DiscoveryGroupManager.AddGroup(g)
	}
	add(apiextensionsv1.GroupName, "v1")
	informer := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
	known := map[string]bool{}
	rebuild := func() {
		versions := map[string][]string{}
		for _, o := range informer.GetStore().List() {
			crd := o.(*apiextensionsv1.CustomResourceDefinition)
			for _, v := range crd.Spec.Versions {
				if v.Served {
					versions[crd.Spec.Group] = append(versions[crd.Spec.Group], v.Name)
				}
			}
		}
		for g := range known {
			if len(versions[g]) == 0 {
				server.DiscoveryGroupManager.RemoveGroup(g)
				delete(known, g)
			}
		}
		for g, vs := range versions {
			add(g, vs...)
			known[g] = true
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { rebuild() }, UpdateFunc: func(any, any) { rebuild() }, DeleteFunc: func(any) { rebuild() },
	})
	return err
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "real-apiserver:", err)
		os.Exit(1)
	}
}

func main() {
	defer klog.Flush()
	must(run())
}
