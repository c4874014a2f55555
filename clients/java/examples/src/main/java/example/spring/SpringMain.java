package example.spring;

import io.offramp.Offramp;
import java.util.concurrent.CountDownLatch;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;

/** A worker in Spring. In Spring Boot, {@code SpringApplication.run} replaces this main. */
@Configuration
@ComponentScan
public class SpringMain {
    /** Closed by Spring after the workers, as it is AutoCloseable. */
    @Bean
    Offramp offramp() {
        return Offramp.connect();
    }

    public static void main(String[] args) throws InterruptedException {
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(SpringMain.class);
        context.registerShutdownHook();
        new CountDownLatch(1).await();
    }
}
