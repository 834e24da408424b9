import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.zip.GZIPInputStream;
import okhttp3.OkHttpClient;
import okhttp3.Request;

/**
 * A watch of all config maps: by OkHttp, which decodes gzip itself, as the official client uses it, and by the JDK's two clients, which leave
 * that to their callers. The name of each event's object is printed on a line of its own.
 *
 * <p>java -cp okhttp.jar:okio.jar Watch.java CLIENT URL TOKEN_FILE
 */
class Watch {
    static final String TARGET = "/api/v1/configmaps?watch=1";

    public static void main(String[] args) throws Exception {
        String url = args[1] + TARGET;
        String bearer = "Bearer " + Files.readString(Path.of(args[2])).strip();
        switch (args[0]) {
            case "OkHttp" -> okHttp(url, bearer);
            case "HttpURLConnection" -> httpUrlConnection(url, bearer);
            case "HttpClient" -> httpClient(url, bearer);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void okHttp(String url, String bearer) throws IOException {
        var client = new OkHttpClient.Builder().readTimeout(Duration.ZERO).build();
        var request = new Request.Builder().url(url).header("Authorization", bearer).build();
        try (var response = client.newCall(request).execute()) {
            var source = response.body().source();
            String line;
            while ((line = source.readUtf8Line()) != null) {
                show(line);
            }
        }
    }

    static void httpUrlConnection(String url, String bearer) throws IOException {
        var connection = new URL(url).openConnection();
        connection.setRequestProperty("Authorization", bearer);
        connection.setRequestProperty("Accept-Encoding", "gzip");
        read(connection.getInputStream(), "gzip".equals(connection.getContentEncoding()));
    }

    static void httpClient(String url, String bearer) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url)).header("Authorization", bearer).header("Accept-Encoding", "gzip").build();
        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofInputStream());
        read(response.body(), response.headers().firstValue("Content-Encoding").orElse("").equals("gzip"));
    }

    static void read(InputStream body, boolean compressed) throws IOException {
        var reader = new BufferedReader(new InputStreamReader(compressed ? new GZIPInputStream(body) : body));
        String line;
        while ((line = reader.readLine()) != null) {
            show(line);
        }
    }

    static void show(String event) {
        String key = "\"name\":\"";
        int begin = event.indexOf(key, event.indexOf("\"metadata\"")) + key.length();
        System.out.println(event.substring(begin, event.indexOf('"', begin)));
    }
}
