// Authentication: the authenticators of a kube-apiserver, in its order.
package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// authnOptions are kube-apiserver's authentication flags, with the same names.
type authnOptions struct {
	clientCA, tokens string
	anonymous        bool
	audiences        []string
	requestHeader    genericoptions.RequestHeaderAuthenticationOptions
}

func (o *authnOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.clientCA, "client-ca-file", "", "CA of the client certificates.")
	fs.StringVar(&o.tokens, "token-auth-file", "", "CSV of static bearer tokens: token,user,uid[,\"group,group\"[,\"audience,audience\"]]. Read again for each request.")
	fs.BoolVar(&o.anonymous, "anonymous-auth", false, "Let anonymous requests in everywhere.")
	fs.StringSliceVar(&o.audiences, "api-audiences", []string{"https://kubernetes.default.svc"}, "Audiences of this server, and of tokens that name none.")
	o.requestHeader.AddFlags(fs)
}

// applyTo installs front proxy, client certificates and tokens, and anonymous requests on the health paths (or
// everywhere with --anonymous-auth).
func (o *authnOptions) applyTo(c *genericapiserver.Config) error {
	var auths []authenticator.Request
	proxy, err := o.requestHeader.ToAuthenticationRequestHeaderConfig()
	if err != nil {
		return err
	}
	if proxy != nil {
		if err := c.Authentication.ApplyClientCert(proxy.CAContentProvider, c.SecureServing); err != nil {
			return err
		}
		c.Authentication.RequestHeaderConfig = proxy
		auths = append(auths, headerrequest.NewDynamicVerifyOptionsSecure(proxy.CAContentProvider.VerifyOptions, proxy.AllowedClientNames,
			proxy.UsernameHeaders, proxy.UIDHeaders, proxy.GroupHeaders, proxy.ExtraHeaderPrefixes))
	}
	if o.clientCA != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCA)
		if err != nil {
			return err
		}
		if err := c.Authentication.ApplyClientCert(ca, c.SecureServing); err != nil {
			return err
		}
		auths = append(auths, x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion))
	}
	c.Authentication.APIAudiences = o.audiences
	if o.tokens != "" {
		t := tokenFile{o.tokens, o.audiences}
		if _, err := t.find(""); err != nil {
			return err
		}
		auths = append(auths, bearertoken.New(t), websocket.NewProtocolAuthenticator(t))
	}
	var only []apiserver.AnonymousAuthCondition
	if !o.anonymous {
		only = []apiserver.AnonymousAuthCondition{{Path: "/livez"}, {Path: "/readyz"}, {Path: "/healthz"}}
	}
	c.Authentication.Authenticator = union.NewFailOnError(group.NewAuthenticatedGroupAdder(union.New(auths...)), anonymous.NewAuthenticator(only))
	return nil
}

// tokenFile reads its file on every request, so that a test can delete a token.
type tokenFile struct {
	path      string
	audiences authenticator.Audiences // of tokens without audiences
}

// find returns the row of a token, or nil.
func (t tokenFile) find(token string) ([]string, error) {
	file, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.FieldsPerRecord = -1
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if len(row) < 3 {
			return nil, fmt.Errorf("%s: a row of %d columns, at least 3 are needed", t.path, len(row))
		}
		if row[0] == token && token != "" {
			return row, nil
		}
	}
	return nil, nil
}

func (t tokenFile) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	row, err := t.find(token)
	if row == nil || err != nil {
		return nil, false, err
	}
	info := &user.DefaultInfo{Name: row[1], UID: row[2]}
	if len(row) > 3 && row[3] != "" {
		info.Groups = strings.Split(row[3], ",")
	}
	audiences := t.audiences
	if len(row) > 4 && row[4] != "" {
		audiences = strings.Split(row[4], ",")
	}
	found := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: info}, true, nil
	})
	return authenticator.WrapAudienceAgnosticToken(audiences, found).AuthenticateToken(ctx, token)
}
