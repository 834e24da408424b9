// The registry store of a built-in kind: a strategy with minimal rules, and
// the real cached storage behind it.
package main

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
)

// strategy is the minimum that the generic registry requires: no validation, and
// spec and status are separate as in the real kinds.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced, forStatus bool
}

func (s strategy) NamespaceScoped() bool                                   { return s.namespaced }
func (strategy) AllowCreateOnUpdate() bool                                 { return false }
func (strategy) AllowUnconditionalUpdate() bool                            { return true }
func (strategy) Canonicalize(runtime.Object)                               {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func part(o runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// PrepareForCreate keeps a status given by the client (the real kinds drop it),
// which saves test fixtures a second request.
func (strategy) PrepareForCreate(_ context.Context, o runtime.Object) {
	if part(o, "Spec").IsValid() {
		o.(metav1.Object).SetGeneration(1)
	}
}

func (s strategy) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	keep := "Status"
	if s.forStatus {
		keep = "Spec"
		m, om := o.(metav1.Object), old.(metav1.Object)
		m.SetLabels(om.GetLabels())
		m.SetDeletionTimestamp(om.GetDeletionTimestamp())
	}
	if v := part(o, keep); v.IsValid() {
		v.Set(part(old, keep))
	}
	if v := part(o, "Spec"); v.IsValid() && !reflect.DeepEqual(v.Interface(), part(old, "Spec").Interface()) {
		o.(metav1.Object).SetGeneration(old.(metav1.Object).GetGeneration() + 1)
	}
}

// resource and statusResource are the REST storages of a kind.
type resource struct {
	*genericregistry.Store
	short []string
}

func (r resource) ShortNames() []string { return r.short }

type statusResource struct{ store *genericregistry.Store }

func (r statusResource) New() runtime.Object { return r.store.New() }
func (r statusResource) Destroy()            {}
func (r statusResource) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, o)
}
func (r statusResource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, cv rest.ValidateObjectFunc, uv rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, cv, uv, false, o)
}
func (r statusResource) ConvertToTable(ctx context.Context, o, opts runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, o, opts)
}

// internalGetter makes objects lose their kind when they are decoded from etcd,
// as a conversion to a distinct internal type would do, so that items of lists
// carry none.
type internalGetter struct{ generic.RESTOptionsGetter }

type internalCodec struct{ runtime.Codec }

func (g internalGetter) GetRESTOptions(gr schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	opts, err := g.RESTOptionsGetter.GetRESTOptions(gr, example)
	if err == nil {
		config := *opts.StorageConfig
		config.Codec = internalCodec{config.Codec}
		opts.StorageConfig = &config
	}
	return opts, err
}

func (c internalCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, gvk, err
}

// storages builds the (real, cached, etcd-backed) registry store of a kind.
func (k *kind) storages(s *runtime.Scheme, getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	attrs := func(o runtime.Object) (labels.Set, fields.Set, error) {
		m, err := meta.Accessor(o)
		if err != nil {
			return nil, nil, err
		}
		fs := generic.ObjectMetaFieldsSet(&metav1.ObjectMeta{Name: m.GetName(), Namespace: m.GetNamespace()}, k.namespaced)
		if k.fields != nil {
			for label, value := range k.fields(o) {
				fs[label] = value
			}
		}
		return m.GetLabels(), fs, nil
	}
	opts := &generic.StoreOptions{RESTOptions: internalGetter{getter}, AttrFunc: attrs}
	var indexed []string
	if k.trigger != "" {
		value := func(o runtime.Object) string { _, fs, _ := attrs(o); return fs[k.trigger] }
		opts.TriggerFunc = storage.IndexerFuncs{k.trigger: value}
		if k.trigger != "metadata.name" { // as the real pods do
			indexed = []string{k.trigger}
			opts.Indexers = &cache.Indexers{storage.FieldIndex(k.trigger): func(o any) ([]string, error) {
				return []string{value(o.(runtime.Object))}, nil
			}}
		}
	}
	gr := k.gv.WithResource(k.plural).GroupResource()
	strat := strategy{s, names.SimpleNameGenerator, k.namespaced, false}
	store := &genericregistry.Store{
		NewFunc: k.obj, NewListFunc: k.list,
		DefaultQualifiedResource:  gr,
		SingularQualifiedResource: schema.GroupResource{Group: gr.Group, Resource: k.singular},
		PredicateFunc: func(l labels.Selector, f fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: l, Field: f, GetAttrs: attrs, IndexFields: indexed}
		},
		CreateStrategy: strat, UpdateStrategy: strat, DeleteStrategy: strat,
		TableConvertor: rest.NewDefaultTableConvertor(gr),
	}
	if k.ttl > 0 {
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return k.ttl, nil }
	}
	if err := store.CompleteWithOptions(opts); err != nil {
		return nil, err
	}
	out := map[string]rest.Storage{k.plural: resource{store, k.short}}
	if part(k.obj(), "Status").IsValid() {
		status := *store
		strat.forStatus = true
		status.UpdateStrategy = strat
		out[k.plural+"/status"] = statusResource{&status}
	}
	return out, nil
}
